"""docs/causes.md, for readers who search the web for an error: each cause that explain names.

The lines are those of the project's own cases: of each rule the shortest line that it matches. A
rule that no case has is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hpcrun.explain.diagnosis.rules import SHIPPED, Rule, fill, load_rules
from hpcrun.explain.diagnosis.scan import plain
from tests.harness import REPO
from tests.unit.explain.public import PUBLIC, load_public
from tests.unit.explain.written import CASES, of_log

PAGE = REPO / "docs/causes.md"
CORPUS = REPO / "tests/data/explain"
_LONGEST = 400
_NEVER_THE_ANSWER = ("caught", "consequence")
_HEAD = """\
<!-- Generated: make golden. tests/golden/test_causes.py says how. -->
# Causes by their error messages

What [hpcrun explain](explain.md) prints for a line of a log: `hpcrun explain --log FILE`. The names
are those of the [rules](explain.md#rules). A state is Slurm's, an exit status the one of a rank.
"""


def texts() -> Iterator[str]:
    """Yield the logs of the failures that were read while the rules were written."""
    for case in CASES.values():
        yield from (case.err, case.batch, case.others)
    for path in sorted(CORPUS.glob("*/**/*")):
        if path.suffix in (".err", ".out", ".log") and path.parts[len(CORPUS.parts)] != "healthy":
            yield path.read_text("utf-8", "replace")
    for name in ("build", "later"):  # the set "test" is not read
        for public in load_public(PUBLIC / name):
            if not public.healthy:
                yield from public.said["logs"].values()


def examples(rules: Iterable[Rule]) -> dict[str, str]:
    """Return name of a rule → the shortest line that it matches.

    A line of which alone explain names the rule comes before the others.
    """
    lines = dict.fromkeys(line for text in texts() for line in text.splitlines())
    shown = [(plain(line.encode())[0].strip(), line.encode()) for line in lines]
    shown = sorted((pair for pair in shown if len(pair[0]) <= _LONGEST), key=lambda p: len(p[0]))
    chosen = {}
    for rule in rules:
        matching = [line for line, raw in shown if rule.match(raw, line) is not None]
        alone = (line for line in matching[:20] if of_log(line).rule == rule.name)
        line = next(alone, next(iter(matching), None))
        if line is None and rule.name.startswith("xid-"):
            line = f"NVRM: Xid (PCI:0000:b4:00): {rule.name.removeprefix('xid-')}"
        if line is not None:
            chosen[rule.name] = line
    return chosen


def entry(rule: Rule, line: str | None) -> str:
    """Return what the page says of a rule; nothing if no case has an example of it."""
    values = {}
    summary = ""
    if line is not None:
        said = of_log(line)
        values = rule.match(line.encode(), line) or {}
        summary = said.summary if said.rule == rule.name else ""
        seen = [line]
    else:
        seen = [f"state {state}" for state in sorted(rule.states)]
        seen += [f"exit status {status}" for status in sorted(rule.exits)]
    if not seen:
        return ""
    blocks = [f"```text\n{text}\n```" for text in seen]
    answer = [summary or fill(rule.cause, values)]
    if rule.fix:
        answer.append(f"fix   {fill(rule.fix, values)}")
    blocks.append("```text\n{}\n```".format("\n".join(answer)))
    return "\n".join([f"\n### {rule.name}\n", *blocks, ""])


def page() -> str:
    """Return the page, in the order of rules.yaml; what Xids say comes last."""
    rules = {rule.name: rule for rule in load_rules([]) if rule.level not in _NEVER_THE_ANSWER}
    lines = examples(rules.values())
    text = _HEAD
    for title, name in re.findall(
        r"^# --- (.+?) -+$|^([\w-]+):$", SHIPPED.read_text("utf-8"), re.MULTILINE
    ):
        if title:
            text += f"\n## {title[0].upper()}{title[1:]}\n"
        elif name in rules:
            text += entry(rules[name], lines.get(name))
    text += "\n## Xids of NVIDIA's driver\n"
    for name, rule in rules.items():
        if name.startswith("xid-"):
            text += entry(rule, lines.get(name))
    return text


def test_the_page_shows_what_explain_prints_for_each_cause(update_golden: bool) -> None:
    text = page()
    if update_golden:
        PAGE.write_text(text, "utf-8")
    assert text == PAGE.read_text("utf-8"), "`make golden` writes it anew"
    assert text.count("\n### ") > 100
