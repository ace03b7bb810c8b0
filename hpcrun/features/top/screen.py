"""What the screens of ``hpcrun top`` share: title, message line, keys at the bottom, and ``?``.

Lines are drawn as they are, never as markup. Only lines that have changed are sent to the terminal.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.geometry import Region
from textual.keys import format_key
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget

from hpcrun.views.text import visible

if TYPE_CHECKING:
    from hpcrun.features.top.reader import Reader

_CONSOLE = Console(file=io.StringIO())  # renders nothing, and knows the names of colours
_PLAIN = Style()
_LAST_KEYS = ("q", "?")


def strip_of(line: Text | str, width: int, left: int = 0) -> Strip:
    """Return a line from one column on, in a given number of cells.

    Invisible characters are written out. ``…`` says that the line goes on. A plain text is shown
    literally.
    """
    parts = (Text(line) if isinstance(line, str) else line).render(_CONSOLE)
    strip = Strip(Segment(visible(text), style or _PLAIN) for text, style, _ in parts)
    if strip.cell_length > left + width:
        strip = Strip([*strip.crop(left, left + width - 1), Segment("…", _PLAIN)])
    else:
        strip = strip.crop(left)
    return strip.adjust_cell_length(width, _PLAIN)


def wrapped(line: Text, width: int, indent: int = 0) -> list[Text]:
    """Return a line in parts of so many cells, all but the first one indented."""
    width = max(2, width)
    indent = indent if indent < width // 2 else 0
    first = "".join(chop_cells(line.plain, width)[:1])
    rest = chop_cells(line.plain[len(first) :], width - indent)
    begin, *parts = line.divide([*accumulate(map(len, [first, *rest[:-1]]))] if rest else [])
    return [begin, *(Text.assemble(" " * indent, part) for part in parts)]


def error_text(error: Exception) -> str:
    """Return what went wrong, of an error with a file the file last: a line may be cut."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename:
            return f"{error.strerror}: {error.filename}"
        return error.strerror
    return str(error) or type(error).__name__


class TextLines(Widget):
    """Lines of text, each made of its number; only those that change are drawn again."""

    DEFAULT_CSS = "TextLines { height: 1; background: ansi_default; color: ansi_default; }"

    def __init__(self, line: Callable[[int], Text | str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._line = line
        self._shown: list[Strip] = []

    def render_line(self, y: int) -> Strip:
        """Return a line for the terminal."""
        return strip_of(self._line(y), self.size.width)

    def update(self) -> None:
        """Draw what has changed since the last call."""
        before, self._shown = self._shown, [self.render_line(y) for y in range(self.size.height)]
        if len(before) != len(self._shown):
            self.refresh()
        elif changed := [y for y, line in enumerate(self._shown) if line != before[y]]:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))


def key_names(binding: Binding) -> str:
    """Return the keys of a binding as a person knows them: ``j/↓``."""
    keys = binding.key.split(",")
    return "/".join(
        key if key == "enter" else format_key(key).replace("ctrl+", "ctrl-") for key in keys
    )


def bindings_of(cls: type[DOMNode]) -> list[Binding]:
    """Return the keys of a screen, those of its own before those that all have."""
    lists = [
        each.__dict__.get("BINDINGS", ())
        for each in cls.__mro__
        if each.__module__.startswith("hpcrun.")
    ]
    return [
        item if isinstance(item, Binding) else Binding(*item) for items in lists for item in items
    ]


@dataclass(slots=True)
class TypedLine:
    """A line that a person types at the bottom of a screen, such as a filter."""

    text: str
    changed: Callable[[str], object]  # is called with the text after each key
    done: Callable[[str | None], object]  # is called with the text at Enter, with None at Esc

    def take(self, key: str, character: str | None) -> bool:
        """Take a key, as readline knows them; returns whether the line is still typed."""
        before = self.text
        is_backspace = key in ("backspace", "ctrl+h")
        if key == "enter" or key in ("escape", "ctrl+c") or (is_backspace and not before):
            self.done(before if key == "enter" else None)
            return False
        if is_backspace:
            self.text = before[:-1]
        elif key in ("ctrl+u", "ctrl+w"):
            if key == "ctrl+w":
                self.text = before.rstrip().rpartition(" ")[0]
            else:
                self.text = ""
        elif character and character.isprintable():
            self.text += character
        if self.text != before:
            self.changed(self.text)
        return True


class TopScreen(Screen[None]):
    """A screen with a title, a body, a line for messages, and the keys at the bottom."""

    DEFAULT_CSS = """
    TopScreen { layout: vertical; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "all keys"),
        Binding("q", "app.quit", "quit"),
    ]
    AUTO_FOCUS = ""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader
        self.calls: dict[str, float] = {}  # name of a call in the background → when it began
        self._message = Text()
        self.typed: TypedLine | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be drawn: textual keeps ``is_mounted`` when a person has left it."""
        return self.is_mounted and self in self.app.screen_stack

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
            if self.is_open:
                take(answer)

        self.reader.in_background(call, partial(ended, then), partial(ended, failed))
        return True

    def waits_s(self, name: str) -> float:
        """Return for how long a call has not returned; 0 if none is made."""
        now = time.monotonic()
        return now - self.calls.get(name, now)

    def draw(self) -> None:
        """Draw the lines that have changed."""
        for lines in self.query(TextLines):
            lines.update()

    def take_key(self, event: events.Key) -> bool:
        """Take a key before all others; returns whether it was taken.

        While a line is typed, all keys are for it.
        """
        line = self.typed
        if line is None:
            return False
        if not line.take(event.key, event.character) and self.typed is line:
            self.typed = None
        self.query_one("#message", TextLines).update()
        return True

    def type_line(
        self, text: str, changed: Callable[[str], object], done: Callable[[str | None], object]
    ) -> None:
        """Let a person type a line at the bottom, behind a slash."""
        self.typed = TypedLine(text, changed, done)
        self.query_one("#message", TextLines).update()

    def on_paste(self, event: events.Paste) -> None:
        """Add what is pasted to the line that is typed."""
        if self.typed:
            self.typed.text += " ".join(event.text.split())
            self.typed.changed(self.typed.text)
            self.query_one("#message", TextLines).update()

    def compose(self) -> ComposeResult:
        """Yield the lines from top to bottom."""
        yield TextLines(lambda _: self.title_line(), id="title")
        yield from self.body()
        yield TextLines(lambda _: self.message_line(), id="message")
        yield TextLines(lambda _: key_line(bindings_of(type(self)), self.size.width), id="keys")

    def title_line(self) -> Text:
        """Return the first line; each screen has its own."""
        return Text("hpcrun top", "bold")

    def body(self) -> ComposeResult:
        """Yield what is between the title and the messages; each screen has its own."""
        yield from ()

    def message_line(self) -> Text | str:
        """Return the line above the keys."""
        if self.typed:
            return Text.assemble((f"/{self.typed.text}", "bold"), (" ", "reverse"))
        return self._message

    def say(self, text: str, style: str = "") -> None:
        """Show a message until the next one."""
        self._message = Text(" ".join(text.split()), style)
        self.query_one("#message", TextLines).update()

    def action_keys(self) -> None:
        """Show all keys."""
        rows = [
            (key_names(item), item.tooltip or item.description) for item in bindings_of(type(self))
        ]
        wide = max(cell_len(keys) for keys, _ in rows)
        lines = [Text.assemble((f" {keys:<{wide}}  ", "bold"), text) for keys, text in rows]
        self.app.push_screen(Dialog(lines, "keys (j/k scroll, esc closes)"))


def key_line(bindings: Sequence[Binding], width: int) -> Text:
    """Return the keys for the bottom of a screen, as many as the screen has room for.

    ``q`` and ``?`` are always among them.
    """
    shown = [(key_names(item), item.description) for item in bindings if item.show]
    last = [pair for pair in shown if pair[0] in _LAST_KEYS]
    rest = [pair for pair in shown if pair[0] not in _LAST_KEYS]
    left = width
    kept: list[tuple[str, str]] = []
    for pair in (*last, *rest):
        need = cell_len(pair[0]) + cell_len(pair[1]) + 3
        if need > left + 2:
            break
        kept.append(pair)
        left -= need
    ordered = [*(pair for pair in kept if pair not in last), *last]
    return Text.assemble(
        *(piece for key, text in ordered for piece in ((key, "bold"), f" {text}  "))
    )


class Dialog(ModalScreen[bool]):
    """Lines in a box over the screen below, with a title in its frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "answer(False)", "close"),
        Binding("j,down", "scroll(1)", "down"),
        Binding("k,up", "scroll(-1)", "up"),
    ]
    DEFAULT_CSS = """
    Dialog { align: center middle; background: transparent; }
    Dialog TextLines { border: ascii ansi_default; width: auto; height: auto; }
    """

    def __init__(self, lines: Sequence[Text], title: str = "") -> None:
        super().__init__()
        self._lines, self._title, self._top = lines, title, 0

    def compose(self) -> ComposeResult:
        """Yield the box."""
        yield TextLines(
            lambda y: self._lines[self._top + y] if self._top + y < len(self._lines) else ""
        )

    def on_resize(self) -> None:
        """Make the box as large as its text, and no larger than the terminal.

        This happens at the beginning, too.
        """
        box = self.query_one(TextLines)
        box.styles.width = min(
            max((line.cell_len for line in self._lines), default=0) + 2, self.app.size.width
        )
        box.styles.height = min(len(self._lines) + 2, self.app.size.height)
        box.border_title = self._title

    def action_scroll(self, lines: int) -> None:
        """Show the lines further down or up, of a terminal that is too low for all."""
        most = max(0, len(self._lines) - self.query_one(TextLines).size.height)
        self._top = min(most, max(0, self._top + lines))
        self.query_one(TextLines).refresh()

    def action_answer(self, answer: bool) -> None:
        """Close it with an answer."""
        self.dismiss(answer)


class Confirmation(Dialog):
    """Something that is done only after ``y``."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n", "answer(False)", "no"),
    ]
