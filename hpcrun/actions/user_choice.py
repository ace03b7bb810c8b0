"""A choice that only the user can make, and who makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a choice."""

    value: str
    flag: str  # what to type to choose it: ``--gpus a100:4``
    about: str = ""  # what distinguishes it from the others


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that only the user can make."""

    what: str  # the thing to choose: ``GPU type``
    key: str  # the key of the profile that decides it for all jobs
    reason: str  # why there is a choice: the heading of the options
    options: tuple[Option, ...]
    default: int = 0  # the position of the option that is offered

    @property
    def named(self) -> str:
        """The thing with its article."""
        return f"{'an' if self.what.startswith('a') else 'a'} {self.what}"

    @property
    def flags(self) -> str:
        """The options that make the choice: ``choose a GPU type: --gpus a100:4, --gpus h100:4``."""
        return f"choose {self.named}: {', '.join(option.flag for option in self.options)}"

    def flags_besides(self, value: str) -> list[str]:
        """Return what to type to choose another value."""
        return [option.flag for option in self.options if option.value != value]


Choose = Callable[[Choice], str]


def first_option(choice: Choice) -> str:
    """Return the default option."""
    return choice.options[choice.default].value


@dataclass(slots=True)
class Picker:
    """Makes choices, or collects those that need a user at a terminal."""

    choose: Choose | None
    unmade: list[Choice] = field(default_factory=list)
    made: list[tuple[Choice, str]] = field(default_factory=list)  # the choices and their answers

    def pick(self, choice: Choice) -> str:
        """Return the answer to a choice, or its default option."""
        if self.choose is None:
            self.unmade.append(choice)
            return first_option(choice)
        answer = self.choose(choice)
        self.made.append((choice, answer))
        return answer
