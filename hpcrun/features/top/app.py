"""``hpcrun top``: the program that shows the screens, and what ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver

from hpcrun.features.top.reader import Reader
from hpcrun.features.top.runs_screen import RunsScreen
from hpcrun.features.top.screen import TopScreen

_LOOKS_EVERY_S = 1.0
"""How often to check for a late answer."""


class _Terminal(LinuxDriver):
    """The terminal. Keys that come in one packet with bytes that are not UTF-8 are ignored: textual's reader fails."""

    def run_input_thread(self) -> None:
        """Read keys until the program ends."""
        while not self.exit_event.is_set():
            with suppress(UnicodeDecodeError):
                super().run_input_thread()


class TopApp(App[None]):
    """The program: it shows what a reader learns."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, tooltip="go back to the shell; fg comes back"),
    ]
    TITLE = "hpcrun top"

    def __init__(self, reader: Reader, words: str = "") -> None:
        super().__init__(driver_class=_Terminal, ansi_color=True)
        self.animation_level = "none"
        self._reader = reader
        self._runs = RunsScreen(reader, words)

    def on_mount(self) -> None:
        """Show the runs, and begin to read."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit)
        self.push_screen(self._runs)
        self._reader.tell(self._post, self._show)
        self._runs.call_after_refresh(self._reader.go_on)
        self.set_interval(_LOOKS_EVERY_S, self._look)

    async def on_event(self, event: events.Event) -> None:
        """Finish the work of each key before the next key is read.

        Textual sends a key through the widgets first: of keys that come in one packet, the second would be read
        before the first has opened a screen or a line to type.
        """
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            return
        screen, focused = self.screen, self.focused
        if isinstance(screen, TopScreen) and screen.take_key(event):
            return
        active = screen.active_bindings.get(event.key)
        if active is None or (focused and focused.check_consume_key(event.key, event.character)):
            await super().on_event(event)
            return
        if active.enabled:
            await self.run_action(active.binding.action, active.node)
        while self.screen is not screen and not self.screen.is_mounted and self.is_running:
            await asyncio.sleep(0.002)

    def action_view(self, name: str) -> None:
        """Show the runs, the user's other jobs, or the queue."""
        if self.screen is not self._runs:
            self.pop_screen()
        if name != "runs":
            from hpcrun.features.top.queue import SCREENS  # few look there

            self.push_screen(SCREENS[name](self._reader))

    def _post(self, call: Callable[..., Any], *args: Any) -> None:
        self.call_later(call, *args)

    def _show(self) -> None:
        if self._runs.is_open:
            self._runs.show_reading()

    def _look(self) -> None:
        if self._runs.is_open and self.screen is self._runs:
            self._runs.look()


def show_top(reader: Reader, words: str) -> None:
    """Show the screens until a person leaves them, or a signal ends them.

    Args:
        words: the filter to begin with.
    """
    TopApp(reader, words).run(mouse=False)
