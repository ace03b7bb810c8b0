"""Rules: the signature of a failure, its cause and what to do.

Checked data from YAML, and one for each Xid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from hpcrun.errors import nearest
from hpcrun.explain.diagnosis.simple_yaml import parse_simple
from hpcrun.explain.diagnosis.traceback import Traceback
from hpcrun.in_job.preflight.xids import CONSEQUENCE, CONTAINED, PROGRAM, RESET, RESTART, XIDS
from hpcrun.job.text.patterns import Pattern, PatternError, compile_pattern
from hpcrun.profiles.folders import Folder, Source, folders_of
from hpcrun.profiles.yaml_file import Mistake, MistakesError, parse_yaml

Level = Literal["cause", "symptom", "wait", "caught", "consequence"]
"""From the answer to mere evidence; ``wait`` is a symptom about other ranks, ``caught`` counts if
others waited.
"""
LEVELS: tuple[str, ...] = get_args(Level)
KEYS = (
    "contains",
    "frames",
    "pattern",
    "marked",
    "at_end",
    "state",
    "exit",
    "before",
    "level",
    "cause",
    "fix",
    "next",
    "source",
)
_PART = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"\{(\w+)\}")
_LONGEST_VALUE = 120
FILE_NAME = "rules.yaml"
SHIPPED = Path(__file__).with_name(FILE_NAME)


class RuleMistake(ValueError):
    """An invalid rule: its name, the key, and the error."""

    def __init__(self, rule: str, key: str | None, text: str) -> None:
        super().__init__(text)
        self.rule, self.key, self.text = rule, key, text


@dataclass(frozen=True, slots=True)
class Rule:
    """One signature.

    Attributes:
        contains: texts of which a line must contain one; none if only ``states`` or ``exits``
            decide.
        pattern: what the line must also match; None if a text alone is enough.
        frames: words of a traceback's frames (file, function, code): one frame must contain
            one of them, and the pattern then matches the exception. Empty if lines alone decide.
        at_end: counts only in the last lines of a log.
        states: states of the job that it explains.
        exits: exit statuses of a rank that it explains, if the rank's log has no message.
        before: rules over which this rule has priority, if both match in one log.
        cause, fix, next: sentences with ``{names}`` of the pattern's groups, and ``[parts]`` that
        are left out without
            them.
    """

    name: str
    contains: tuple[bytes, ...] = ()
    pattern: Pattern | None = None
    at_end: bool = False
    states: frozenset[str] = frozenset()
    exits: frozenset[int] = frozenset()
    before: frozenset[str] = frozenset()
    level: Level = "cause"
    cause: str = ""
    fix: str = ""
    next: str = ""
    source: str = ""
    frames: tuple[str, ...] = ()

    def match_raised(self, raised: Traceback) -> dict[str, str | None] | None:
        """Return the named groups if an exception was raised in the frames of this rule, else None.

        The exception from which it was raised counts as well.
        """
        for one in (raised, raised.origin):
            if one is None or not self._has_frame(one):
                continue
            match = self.pattern.search(one.exception) if self.pattern else None
            if match is not None:
                return dict(match.named)
        return None

    def _has_frame(self, raised: Traceback) -> bool:
        for frame in raised.frames:
            text = f"{frame.file} {frame.function} {frame.code}"
            if any(part in text for part in self.frames):
                return True
        return False

    def match(self, raw: bytes, line: str) -> dict[str, str | None] | None:
        """Return the named groups if a line matches this rule, else None."""
        if not any(text in raw for text in self.contains):
            return None
        if self.pattern is None:
            return {}
        match = self.pattern.search(line)
        return None if match is None else dict(match.named)


def fill(sentence: str, values: Mapping[str, str | None]) -> str:
    """Put values in their places.

    A part in brackets is left out if a value in the part is missing or empty.
    """

    def part(match: re.Match[str]) -> str:
        inner = match[1]
        if all(values.get(name) for name in _NAME.findall(inner)):
            return inner
        return ""

    text = _PART.sub(part, sentence) if "{" in sentence else sentence
    return _NAME.sub(lambda match: (values.get(match[1]) or "?")[:_LONGEST_VALUE], text)


def parse_rules(
    data: Mapping[str, Any], pattern_of: Callable[[str], Pattern] = compile_pattern
) -> list[Rule]:
    """Read rules from a mapping of their names, in its order.

    Args:
        data: name → keys and values, as YAML has them.
        pattern_of: makes a pattern of its text, and checks the text or not.

    Raises:
        RuleMistake: the first invalid rule.
    """
    return [_rule(name, rule, pattern_of) for name, rule in data.items()]


def merge_rules(layers: list[list[Rule]]) -> tuple[Rule, ...]:
    """Join rules of several files, most important first; of one name, the first counts."""
    merged: dict[str, Rule] = {}
    for rules in layers:
        for rule in rules:
            merged.setdefault(rule.name, rule)
    return tuple(merged.values())


def _rule(name: str, data: Any, pattern_of: Callable[[str], Pattern]) -> Rule:
    if not isinstance(data, dict):
        raise RuleMistake(name, None, "a rule is a mapping with contains, cause and fix")
    for key in data:
        if key not in KEYS:
            raise RuleMistake(name, key, f"unknown key {key!r}")
    words = _texts(name, "contains", data)
    states = _texts(name, "state", data)
    exits = _texts(name, "exit", data)
    frames = _texts(name, "frames", data)
    if not (words or states or exits or frames):
        needs = "a rule needs contains, frames, state or exit: what it goes by"
        raise RuleMistake(name, None, needs)
    level = str(data.get("level", "cause"))
    if level not in LEVELS:
        raise RuleMistake(name, "level", f"level is one of {', '.join(LEVELS)}, not {level!r}")
    if not isinstance(data.get("cause"), str) or not data["cause"]:
        raise RuleMistake(name, "cause", "cause says in a sentence what happened")
    if not all(number.isascii() and number.isdigit() for number in exits):
        raise RuleMistake(name, "exit", "exit takes exit statuses, such as [139]")
    return Rule(
        name,
        tuple(text.encode() for text in words),
        _pattern(name, data.get("pattern"), pattern_of),
        data.get("at_end") is True,
        frozenset(states),
        frozenset(map(int, exits)),
        frozenset(_texts(name, "before", data)),
        cast(Level, level),
        **{key: str(data.get(key) or "") for key in ("cause", "fix", "next", "source")},
        frames=tuple(frames),
    )


def _texts(name: str, key: str, data: Mapping[str, Any]) -> list[str]:
    value = data.get(key, [])
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) and item for item in items):
        raise RuleMistake(name, key, f"{key} takes a text or a list of texts")
    return items


def _pattern(name: str, text: Any, pattern_of: Callable[[str], Pattern]) -> Pattern | None:
    if text is None:
        return None
    try:
        return pattern_of(str(text))
    except PatternError as error:
        raise RuleMistake(
            name, "pattern", f"not a regular expression that can be used: {error}"
        ) from None


_XID_LINE = r"NVRM: Xid \((?P<gpu>[^)]*)\): {code}\b"
_XID_CHECK = "hpcrun preflight -P {profile} --nodes {nodes}"
_XID_CATALOGUE = "docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
# what an Xid calls for → level, what happened, what to do, a command
_XID_WORDS: dict[int, tuple[Level, str, str, str]] = {
    PROGRAM: (
        "cause",
        "the program caused an error on the GPU at {{gpu}}: {meaning} (Xid {code})",
        "run a small case with CUDA_LAUNCH_BLOCKING=1, or with compute-sanitizer",
        "",
    ),
    RESTART: (
        "symptom",
        "the GPU at {{gpu}} reported {meaning} (Xid {code})",
        "resubmit from the last checkpoint; if it returns on this node, exclude (--exclude) and "
        "report the node",
        _XID_CHECK,
    ),
    CONTAINED: (
        "cause",
        "a memory error of the GPU at {{gpu}}, contained to this program (Xid {code})",
        "resubmit from the last checkpoint, on another node if the error returns",
        "",
    ),
    RESET: (
        "cause",
        "the driver reported a hardware fault of the GPU at {{gpu}}: {meaning} (Xid {code})",
        "exclude the node (--exclude), resubmit from the last checkpoint, and report the Xid: the "
        "GPU needs a reset",
        _XID_CHECK,
    ),
    CONSEQUENCE: ("consequence", "the GPU at {{gpu}}: {meaning} (Xid {code})", "", ""),
}


def xid_rules() -> list[Rule]:
    """Return a rule for each Xid that explains the end of a program.

    Xids that are only notes have no rule.
    """
    return [
        _xid_rule(code, kind, meaning)
        for code, (kind, meaning) in XIDS.items()
        if kind in _XID_WORDS
    ]


def _xid_rule(code: int, kind: int, meaning: str) -> Rule:
    level, cause, fix, following = _XID_WORDS[kind]
    return Rule(
        f"xid-{code}",
        (b"NVRM: Xid",),
        Pattern(_XID_LINE.replace("{code}", str(code))),
        before=frozenset(
            {"illegal-access", "device-assert", "device-assert-raised"} if kind == RESET else ()
        ),
        level=level,
        cause=cause.format(code=code, meaning=meaning),
        fix=fix,
        next=following,
        source=_XID_CATALOGUE,
    )


def load_rules(folders: Iterable[Source]) -> tuple[Rule, ...]:
    """Read ``rules.yaml`` of each folder, the most important first, and the shipped file.

    Of rules with one name, the first counts.

    Raises:
        ProfileError: if a file is broken, or a rule in it means nothing; the error says file and
            line.
    """
    with_rules = [folder for folder in folders_of(list(folders)) if folder.has(FILE_NAME)]
    return merge_rules([*(_read(folder) for folder in with_rules), xid_rules(), _shipped_rules()])


def _shipped_rules() -> list[Rule]:
    """Read the rules that a test has checked: of a short log, few of their patterns are needed."""
    simple = parse_simple(SHIPPED.read_text("utf-8"))
    if simple is None:
        return _read(Folder(SHIPPED.parent, checked=False))
    return parse_rules(simple, Pattern)


def _read(folder: Folder) -> list[Rule]:
    path = folder.path / FILE_NAME
    file = parse_yaml(folder.text(FILE_NAME), path)
    try:
        return parse_rules(file.data)
    except RuleMistake as mistake:
        if mistake.key is None:
            key: tuple[str, ...] = (mistake.rule,)
        else:
            key = (mistake.rule, mistake.key)
        origin = file.origins.get(key) or file.origins[(mistake.rule,)]
        if mistake.key and mistake.key not in KEYS:
            close = nearest(mistake.key, list(KEYS))
        else:
            close = None
        raise MistakesError(
            [Mistake(path, origin.line, f"rule {mistake.rule}: {mistake.text}", key)],
            hint=f"did you mean {close!r}?" if close else "docs/explain.md has the keys of a rule",
        ) from None
