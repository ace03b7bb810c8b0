"""What the screens of ``hpcrun top`` share: title, lines, message, keys, and ``?``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.keys import format_key
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from hpcrun.features.top.lines import LineView, TextRow

if TYPE_CHECKING:
    from hpcrun.features.top.reader import Reader

ALL_LINES = 1_000_000_000  # how far a key moves to the first or the last line


def error_text(error: Exception) -> str:
    """Return what went wrong, of an error with a file the file last: a line may be cut."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"{error.strerror}: {error.filename}"
        return error.strerror
    return str(error) or type(error).__name__


def key_names(binding: Binding) -> str:
    """Return the keys of a binding as a person knows them: ``j/↓``."""
    names = []
    for key in binding.key.split(","):
        name = key if key == "enter" else format_key(key)
        names.append(name.replace("ctrl+", "ctrl-"))
    return "/".join(names)


class TypedLine(Input):
    """A line that a person types at the bottom of a screen, such as a filter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.end_line(True)"),
        Binding("escape", "screen.end_line(False)"),
        Binding("ctrl+c", "screen.end_line(False)", priority=True),  # else it ends the program
    ]
    DEFAULT_CSS = """
    TypedLine, TypedLine:ansi { background: ansi_default; text-style: bold; }
    TypedLine:ansi > .input--cursor {
        background: ansi_default; color: ansi_default; text-style: reverse;
    }
    """

    def replace(self, text: str, start: int, end: int) -> None:
        """Put a text in the place of a part, without what could control the terminal."""
        super().replace("".join(filter(str.isprintable, text)), start, end)


class TopScreen(Screen[None]):
    """A screen with a title, lines, a row for messages, and the keys at the bottom.

    Its widgets are attributes and not asked for by name: when the program ends, textual takes them
    off a screen that is still called.
    """

    DEFAULT_CSS = """
    TopScreen { layout: vertical; background: ansi_default; color: ansi_default; }
    TopScreen Horizontal { height: 1; display: none; }
    TopScreen #slash { width: 1; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "one screen down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "one screen up", show=False),
        Binding("question_mark", "keys", "all keys"),
        Binding("q", "app.quit", "quit"),
    ]
    AUTO_FOCUS = ""

    def __init__(self, reader: Reader, lines: LineView[Any]) -> None:
        super().__init__()
        self.reader = reader
        self.lines = lines  # those through which a person moves
        self.calls: dict[str, float] = {}  # name of a call in the background → when it began
        self.message = Text()
        self._title_row = TextRow(id="title")
        self._message_row = TextRow(id="message")
        self._keys_row = TextRow(id="keys")
        self._typed = TypedLine(select_on_focus=False, compact=True)
        self._typed.cursor_blink = False
        self._typed_row = Horizontal(Static("/", id="slash"), self._typed)
        self._line_changed: Callable[[str], object] = lambda _: None
        self._line_ended: Callable[[str | None], object] = lambda _: None

    def call(
        self,
        name: str,
        call: Callable[[], Any],
        then: Callable[[Any], object],
        failed: Callable[[Any], object],
    ) -> bool:
        """Make a call in a thread, and return whether the call is made.

        The call is not made if a call of this name is already in progress. ``then`` takes the
        answer, ``failed`` the HpcrunError or OSError; a screen that was left hears of neither.
        """
        if name in self.calls:
            return False
        self.calls[name] = time.monotonic()

        def ended(take: Callable[[Any], object], answer: object) -> None:
            del self.calls[name]
            if self.is_running:
                take(answer)

        self.reader.in_background(call, partial(ended, then), partial(ended, failed))
        return True

    def waits_s(self, name: str) -> float:
        """Return for how long a call has not returned; 0 if none is made."""
        now = time.monotonic()
        return now - self.calls.get(name, now)

    # --- what is on the screen

    def title_line(self) -> Text:
        """Return the first line; each screen has its own."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        """Return what is between the title and the messages."""
        return [self.lines]

    def message_line(self) -> Text:
        """Return the line above the keys."""
        return self.message

    def compose(self) -> ComposeResult:
        """Yield the widgets from top to bottom."""
        yield self._title_row
        yield from self.body()
        yield self._message_row
        yield self._typed_row
        yield self._keys_row

    def on_resize(self) -> None:
        """Show the keys for which there is room."""
        self._keys_row.text = key_line(bindings_of(self), self.size.width)

    def on_screen_resume(self) -> None:
        """Fit into the size that the terminal has now: below another screen, no change is told."""
        self.on_resize()

    def draw_rows(self) -> None:
        """Draw the rows around the lines."""
        self._title_row.text = self.title_line()
        self._message_row.text = self.message_line()

    def say(self, text: str, style: str = "") -> None:
        """Show a message until the next one."""
        self.message = Text(" ".join(text.split()), style)
        self.draw_rows()

    # --- keys

    def moved(self, *, up: bool) -> None:  # noqa: ARG002 - a log is read on where its lines end
        """Draw what is said of the place."""
        self.draw_rows()

    def action_move(self, lines: int) -> None:
        """Move up or down."""
        self.lines.move(lines)
        self.moved(up=lines < 0)

    def action_page(self, pages: int) -> None:
        """Move by a screen, of which a line stays where there is no cursor."""
        self.action_move(pages * max(1, self.lines.size.height - (not self.lines.chooses)))

    def type_line(
        self, text: str, changed: Callable[[str], object], ended: Callable[[str | None], object]
    ) -> None:
        """Let a person type a line at the bottom, behind a slash.

        Args:
            text: the text to begin with.
            changed: is called with the text after each change.
            ended: is called with the text at Enter, with None at Esc.
        """
        self._line_changed = changed
        self._line_ended = ended
        with self.prevent(Input.Changed):
            self._typed.clear()
            self._typed.insert_text_at_cursor(text)
        self._show_typed(True)
        self.set_focus(self._typed, scroll_visible=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell what is typed."""
        if self._typed_row.display:
            self._line_changed(event.value)

    def action_end_line(self, accepted: bool) -> None:
        """Take the line that was typed, or leave it."""
        self.set_focus(None)
        self._show_typed(False)
        self._line_ended(self._typed.value if accepted else None)

    def _show_typed(self, shown: bool) -> None:
        self._typed_row.display = shown
        self._message_row.display = not shown

    def action_keys(self) -> None:
        """Show all keys."""
        keys = Text()
        for binding in bindings_of(self):
            keys.append(f" {key_names(binding):<11}  ", "bold")
            keys.append(f"{binding.tooltip or binding.description}\n")
        keys.rstrip()
        self.app.push_screen(Dialog(keys, "keys (j/k scroll, esc closes)"))


def bindings_of(screen: TopScreen) -> list[Binding]:
    """Return the keys of a screen, those of its own before those that all have."""
    bindings: list[Any] = []
    for each in type(screen).__mro__:
        if each.__module__.startswith("hpcrun."):
            bindings += each.__dict__.get("BINDINGS", ())
    return bindings


def key_line(bindings: Iterable[Binding], width: int) -> Text:
    """Return the keys for the bottom of a screen: the last two, and others if they have room.

    Textual's Footer cuts the last ones, and takes 50 ms when a person begins to type.
    """
    keys = []
    for binding in bindings:
        if binding.show:
            keys.append(Text.assemble((key_names(binding), "bold"), f" {binding.description}  "))
    while len(keys) > 2 and sum(key.cell_len for key in keys) > width + 2:
        del keys[-3]
    return Text().join(keys)


class Dialog(ModalScreen[bool]):
    """A text in a box over the screen below, with a title in its frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "answer(False)", "close"),
        Binding("j", "scroll(1)", "down"),
        Binding("k", "scroll(-1)", "up"),
    ]
    DEFAULT_CSS = """
    Dialog { align: center middle; background: transparent; }
    Dialog VerticalScroll {
        border: ascii ansi_default;
        width: auto; height: auto; max-width: 100%; max-height: 100%; scrollbar-size: 0 0;
    }
    Dialog Static { width: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, text: Text, title: str) -> None:
        super().__init__()
        self._box = VerticalScroll(Static(text))
        self._box.border_title = title

    def compose(self) -> ComposeResult:
        """Yield the box."""
        yield self._box

    def action_scroll(self, lines: int) -> None:
        """Show the lines further down or up."""
        self._box.scroll_relative(y=lines, animate=False, immediate=True)

    def action_answer(self, answer: bool) -> None:
        """Close it with an answer."""
        self.dismiss(answer)


class Confirmation(Dialog):
    """Something that is done only after ``y``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n", "answer(False)", "no"),
    ]
