"""Write the files that are made from the program, or check that they are as it is now."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dev.reference import cards, commands, keys, python_api
from hpcrun.profiles.file_schemas import profile_schema

REPO = Path(__file__).resolve().parents[2]
MAN = REPO / "docs/man"


def files() -> dict[Path, str]:
    """Return each file that is made, and its text."""
    texts = {
        REPO / "cluster_profiles/schema.json": json.dumps(profile_schema(), indent=2) + "\n",
        REPO / "docs/options.md": commands.page(),
        REPO / "docs/cards.md": cards.page(),
        REPO / "docs/keys.md": keys.page(),
        REPO / "docs/api.md": python_api.page(),
        REPO / "hpcrun/api/executor_parameters.py": python_api.module(),
    }
    for command in commands.all_commands():
        texts[MAN / command.man_name] = commands.man_page(command)
    return texts


def outdated(texts: dict[Path, str], man: Path = MAN) -> list[Path]:
    """Return the files that are missing, that differ, or that nothing makes any more.

    Args:
        texts: the files, as they should be.
        man: the folder in which there are no other files.
    """
    old = [path for path in sorted(man.glob("*")) if path not in texts]
    for path, text in texts.items():
        if not path.exists() or path.read_text("utf-8") != text:
            old.append(path)
    return old


def main() -> int:
    """Write the files, or with ``--check`` name those that are old; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file is old")
    check: bool = parser.parse_args().check
    texts = files()
    old = outdated(texts)
    for path in old:
        print(f"{path.relative_to(REPO)} is old" if check else path.relative_to(REPO))
        if check:
            continue
        if path in texts:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path], "utf-8")
        else:
            path.unlink()
    if check and old:
        print("hint: make golden", file=sys.stderr)
    return int(check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
