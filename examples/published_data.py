"""Published data sets in the files in which their authors give them away: texts, KGAT's graphs, and
MovieLens-1M.

Nothing is downloaded. Each reader says in one line what is missing in its folder, and which page
has it.
"""

from __future__ import annotations

import csv
import io
import zipfile
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from movielens import Rating, films_by_user

IMDB_PAGE = "https://ai.stanford.edu/~amaas/data/sentiment/ (aclImdb_v1.tar.gz)"
AG_NEWS_PAGE = (
    "http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html (Xiang Zhang's "
    "ag_news_csv.tar.gz)"
)
KGAT_PAGE = "https://github.com/xiangwang1223/knowledge_graph_attention_network (its folder Data)"


class Text(NamedTuple):
    """A text and the number of its class, from 0."""

    text: str
    label: int


def need(folder: Path, name: str, page: str) -> Path:
    """Return the path of a part of a data set.

    Raises:
        SystemExit: there is no such file or folder.
    """
    if not (path := folder / name).exists():
        raise SystemExit(f"{folder} has no {name}: get it from {page}")
    return path


# --- texts ---------------------------------------------------------------------------------------


def read_imdb(folder: Path, part: str) -> list[Text]:
    """Return the film reviews of ``train`` or ``test``: one file each, in the folders ``neg`` and
    ``pos``.
    """
    texts: list[Text] = []
    for label, kind in enumerate(("neg", "pos")):
        reviews = sorted(need(folder, f"{part}/{kind}", IMDB_PAGE).glob("*.txt"))
        if not reviews:
            raise SystemExit(
                f"{folder / part / kind} has no reviews (*.txt): get them from {IMDB_PAGE}"
            )
        texts += [
            Text(file.read_text(encoding="utf-8").replace("<br />", " "), label) for file in reviews
        ]
    return texts


def read_ag_news(folder: Path, part: str) -> list[Text]:
    """Return the news of ``train`` or ``test``: rows of class (1 to 4), title and description,
    without a header.
    """
    path = need(folder, f"{part}.csv", AG_NEWS_PAGE)
    texts: list[Text] = []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        for row in rows:
            if len(row) != 3 or row[0] not in {"1", "2", "3", "4"}:
                raise SystemExit(
                    f"{path}, line {rows.line_num}: expected class (1 to 4), title and description"
                )
            # A line break is written as a backslash, with or without an n.
            text = f"{row[1]} {row[2]}".replace("\\n", " ").replace("\\", " ")
            texts.append(Text(text, int(row[0]) - 1))
    return texts


class TextSet(NamedTuple):
    """How a data set of texts is read, and the file or folder by which it is recognised."""

    classes: int
    mark: str
    read: Callable[[Path, str], list[Text]]


TEXT_SETS = {
    "imdb": TextSet(2, "train/pos", read_imdb),
    "ag_news": TextSet(4, "train.csv", read_ag_news),
}


def text_set(folder: Path, name: str | None) -> TextSet:
    """Return the data set of this name; without a name, the one that lies in the folder."""
    names = (
        [name]
        if name
        else [each for each, kind in TEXT_SETS.items() if (folder / kind.mark).exists()]
    )
    if not names:
        raise SystemExit(
            f"{folder} has neither train/pos and train/neg (IMDB) nor train.csv (AG News)"
        )
    return TEXT_SETS[names[0]]


# --- KGAT's graphs: amazon-book, last-fm, yelp2018 -----------------------------------------------


class Graph(NamedTuple):
    """Who likes what, and facts about the items; everything is counted from 0, and the first
    entities are the items.

    Args:
        facts: rows of head, relation and tail.
        seen: rows of user and item, to train on.
        held_out: the items of each user that are to be found.
    """

    users: int
    items: int
    entities: int
    relations: int
    facts: torch.Tensor
    seen: torch.Tensor
    held_out: list[list[int]]


def numbers(line: str, place: str, expected: str) -> list[int]:
    """Return the numbers of a line."""
    words = line.split()
    if all(token.isdecimal() for token in words):
        return [int(token) for token in words]
    raise SystemExit(f"{place}: expected {expected}")


def items_by_user(path: Path) -> dict[int, list[int]]:
    """Return the items of each user: lines of a user and items, some of which are there twice, or
    none.
    """
    by_user: dict[int, list[int]] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if row := numbers(line, f"{path}, line {number}", "the numbers of a user and of items"):
                by_user[row[0]] = list(dict.fromkeys(row[1:]))
    return by_user


def lines_of(path: Path) -> Iterator[str]:
    """Return the lines of a file, or of the only file in a zip archive, as two of the graphs are
    published.
    """
    if path.suffix != ".zip":
        with path.open(encoding="utf-8") as file:
            yield from file
        return
    with zipfile.ZipFile(path) as archive, archive.open(path.stem) as packed:
        yield from io.TextIOWrapper(packed, encoding="utf-8")


def read_facts(path: Path) -> torch.Tensor:
    """Return the different facts of a knowledge graph: lines of head, relation and tail."""
    columns = array("i")  # millions of rows: lists of them would take gigabytes in each rank
    for number, line in enumerate(lines_of(path), 1):
        row = numbers(
            line, f"{path}, line {number}", expected := "the numbers of head, relation and tail"
        )
        if len(row) != 3:
            raise SystemExit(f"{path}, line {number}: expected {expected}")
        columns.extend(row)
    if not columns:
        raise SystemExit(f"{path} is empty: get it from {KGAT_PAGE}")
    facts: torch.Tensor = (
        torch.frombuffer(columns, dtype=torch.int32).view(-1, 3).long().unique(dim=0)
    )
    return facts


def read_graph(folder: Path) -> Graph:
    """Return a graph in KGAT's format; the lists of original names beside it are not read."""
    train, test = (
        items_by_user(need(folder, f"{part}.txt", KGAT_PAGE)) for part in ("train", "test")
    )
    packed = folder / "kg_final.txt.zip"
    facts = read_facts(packed if packed.exists() else need(folder, "kg_final.txt", KGAT_PAGE))
    for part, liked in (("train", train), ("test", test)):
        if not any(liked.values()):
            raise SystemExit(f"{folder / part}.txt has no items: get it from {KGAT_PAGE}")
    seen = [(user, item) for user, liked in train.items() for item in liked]
    users = max(*train, *test) + 1
    items = max(item for part in (train, test) for liked in part.values() for item in liked) + 1
    entities = max(int(facts[:, [0, 2]].max()) + 1, items)
    held_out = [test.get(user, []) for user in range(users)]
    return Graph(
        users, items, entities, int(facts[:, 1].max()) + 1, facts, torch.tensor(seen), held_out
    )


# --- histories: ml-1m ----------------------------------------------------------------------------

FEWEST_ITEMS = 3
"""Of a history: the last two are for the test and the validation, and one has to come before them.
"""


def read_histories(path: Path, *, timed: bool) -> list[list[Rating]]:
    """Return the items of each user, the oldest first: lines of user and item in this order, or
    with rating and time.

    SASRec's ml-1m.txt has two columns, TiSASRec's has four; so has GroupLens' ratings.dat, with
    ``::`` between them. Items are numbered anew, from 0. Users with fewer than three items are left
    out.

    Args:
        timed: whether the times are needed.
    """
    if not path.is_file():
        raise SystemExit(f"--data {path}: there is no such file")
    expected = (
        "user, item, rating and time" if timed else "user and item, or user, item, rating and time"
    )
    lines: list[tuple[int, int, int]] = []
    columns = 4 if timed else None  # else as in the first line
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not (words := line.replace("::", " ").split()):
                continue
            columns, place = columns or len(words), f"{path}, line {number}"
            if len(words) != columns or columns not in (2, 4):
                raise SystemExit(
                    f"{place}: expected {expected}{' (--time-aware needs the time)' * timed}"
                )
            time = words[3] if columns == 4 else str(number)  # the lines are in order
            user, item, time_s = numbers(
                f"{words[0]} {words[1]} {time}", place, f"whole numbers: {expected}"
            )
            lines.append((user, item, time_s))
    lines.sort(key=lambda line: line[2])  # a stable sort: equal times keep their order
    index = {item: place for place, item in enumerate(sorted({item for _, item, _ in lines}))}
    histories = films_by_user(
        Rating(user, index[item], 0.0, time_s) for user, item, time_s in lines
    )
    long_enough = [history for history in histories if len(history) >= FEWEST_ITEMS]
    if not long_enough:
        raise SystemExit(f"{path}: no user has {FEWEST_ITEMS} items or more")
    return long_enough
