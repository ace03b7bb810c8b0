"""A choice that only a person can make, and how it is made: at the terminal, or by one message that names the flags."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from hpcrun.actions.profiles.detected import DETECTED
from hpcrun.errors import UsageError


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a choice.

    Attributes:
        flag: what to type to choose it: ``--gpus a100:4``.
        about: what distinguishes it from the others.
    """

    value: str
    flag: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that only a person can make.

    Attributes:
        what: the thing to choose: ``GPU type``.
        key: of the profile that settles it for all jobs.
        reason: why there is a choice, as the heading of the options.
        default: the position of the option that is offered.
    """

    what: str
    key: str
    reason: str
    options: tuple[Option, ...]
    default: int = 0

    @property
    def named(self) -> str:
        """The thing with its article."""
        return f"{'an' if self.what.startswith('a') else 'a'} {self.what}"

    @property
    def flags(self) -> str:
        """What to type instead of an answer: ``choose a GPU type: --gpus a100:4, --gpus h100:4``."""
        return f"choose {self.named}: {', '.join(option.flag for option in self.options)}"


Choose = Callable[[Choice], str]


@dataclass(slots=True)
class Picker:
    """Makes choices, or collects those that cannot be made without a person at a terminal."""

    choose: Choose | None
    unmade: list[Choice] = field(default_factory=list)

    def pick(self, choice: Choice) -> str:
        """Return the answer to a choice, or what would be offered."""
        if self.choose is None:
            self.unmade.append(choice)
            return choice.options[choice.default].value
        return self.choose(choice)

    def check(self, profile: str) -> None:
        """Refuse choices that were not made, all in one message.

        Raises:
            UsageError: there is one.
        """
        if not self.unmade:
            return
        values = [f"{made.key}={made.options[made.default].value}" for made in self.unmade]
        command = ("init",) if profile == DETECTED else ("profile", "set", profile, *values)
        raise UsageError(
            "\n".join(made.flags for made in self.unmade), hint=f"for all your jobs: hpcrun {shlex.join(command)}"
        )


def first_option(choice: Choice) -> str:
    """Make a choice without asking: take what would be offered."""
    return choice.options[choice.default].value
