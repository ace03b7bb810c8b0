"""The rules of explain: the user's and the project's own before those that hpcrun ships."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import hpcrun.explain.diagnosis
from hpcrun.errors import nearest
from hpcrun.explain.diagnosis.rules import KEYS, Rule, RuleMistake, merge_rules, parse_rules, xid_rules
from hpcrun.profiles.folder import Folder, Source, folders_of
from hpcrun.profiles.yaml_file import Mistake, MistakesError, parse_yaml

FILE_NAME = "rules.yaml"
SHIPPED = Path(hpcrun.explain.diagnosis.__file__).with_name(FILE_NAME)


def load_rules(folders: Iterable[Source]) -> tuple[Rule, ...]:
    """Read ``rules.yaml`` of each folder, most important first, and the shipped one; of one name the first counts.

    Raises:
        ProfileError: a file is broken, or a rule in it means nothing; it says file and line.
    """
    own = [folder for folder in folders_of(list(folders)) if folder.has(FILE_NAME)]
    shipped = _read(Folder(SHIPPED.parent, checked=False))
    return merge_rules([*(_read(folder) for folder in own), xid_rules(), shipped])


def _read(folder: Folder) -> list[Rule]:
    path = folder.path / FILE_NAME
    file = parse_yaml(folder.text(FILE_NAME), path)
    try:
        return parse_rules(file.data)
    except RuleMistake as mistake:
        key = (mistake.rule,) if mistake.key is None else (mistake.rule, mistake.key)
        origin = file.origins.get(key) or file.origins[(mistake.rule,)]
        close = nearest(mistake.key, list(KEYS)) if mistake.key and mistake.key not in KEYS else None
        raise MistakesError(
            [Mistake(path, origin.line, f"rule {mistake.rule}: {mistake.text}", key)],
            hint=f"did you mean {close!r}?" if close else "docs/explain.md has the keys of a rule",
        ) from None
