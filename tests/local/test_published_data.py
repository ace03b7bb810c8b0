"""The readers of published data sets, on a few rows in their formats, and a training on each kind."""

from __future__ import annotations

import importlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.harness import REPO

FACTS = "0 0 3\n1 0 3\n2 1 4\n0 0 3\n"  # one is there twice, as in the published files


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The only rank of a training."""
    monkeypatch.syspath_prepend(REPO / "examples")
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "HPCRUN_CHECKPOINT_DIR": str(tmp_path / "kept")}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "kept").mkdir()


@pytest.fixture
def read() -> ModuleType:
    return importlib.import_module("published_data")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def imdb(tmp_path: Path) -> Path:
    files = {
        "pos/0_9.txt": "A splendid film.<br /><br />Très bon!",
        "pos/1_7.txt": "Good.",
        "neg/0_3.txt": "Bad, and then it went on.",
        "neg/1_1.txt": "",
    }
    both = {f"{part}/{name}": text for part in ("train", "test") for name, text in files.items()}
    return write(tmp_path / "aclImdb", {**both, "train/unsup/0_0.txt": "Nobody knows.", "README": "..."})


@pytest.fixture
def ag_news(tmp_path: Path) -> Path:
    rows = '"3","Wall St. Bears","Short-sellers, the ""ultra-cynics""\\nare back\\green"\n"1","Talks","In Vienna"\n'
    return write(tmp_path / "ag_news_csv", {"train.csv": rows, "test.csv": rows, "classes.txt": "World\n"})


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    files = {
        "train.txt": "0 0 1 1\n1 2\n2 1 2 \n",
        "test.txt": "0 2\n1\n2 0\n",  # the second user has nothing to be found, as 88 of amazon-book
        "kg_final.txt": FACTS,
        "entity_list.txt": "org_id remap_id\nm.045wq1q 0\n",
        "relation_list.txt": "org_id remap_id\nhttp://rdf.freebase.com/ns/type.object.type 0\n",
        "user_list.txt": "org_id remap_id\nA3RTKL9KB8KLID 0\n",
        "item_list.txt": "org_id remap_id freebase_id\n0553092626 0 m.045wq1q\n",
    }
    return write(tmp_path / "last-fm", files)


def test_imdb_has_a_file_for_each_review(read: ModuleType, imdb: Path) -> None:
    texts = read.read_imdb(imdb, "train")
    assert [label for _, label in texts] == [0, 0, 1, 1]
    assert texts[2].text == "A splendid film.  Très bon!"
    assert read.text_set(imdb, None).read is read.read_imdb


def test_ag_news_has_rows_with_quotes_and_escaped_line_breaks(read: ModuleType, ag_news: Path) -> None:
    assert [tuple(text) for text in read.read_ag_news(ag_news, "train")] == [
        ('Wall St. Bears Short-sellers, the "ultra-cynics" are back green', 2),
        ("Talks In Vienna", 0),
    ]
    assert read.text_set(ag_news, None).read is read.read_ag_news


@pytest.mark.parametrize("packed", [False, True])
def test_a_graph_has_its_users_items_and_facts(read: ModuleType, graph: Path, packed: bool) -> None:
    if packed:  # amazon-book and yelp2018
        with zipfile.ZipFile(graph / "kg_final.txt.zip", "w") as archive:
            archive.write(graph / "kg_final.txt", "kg_final.txt")
        (graph / "kg_final.txt").unlink()
    found = read.read_graph(graph)
    assert (found.users, found.items, found.entities, found.relations) == (3, 3, 5, 2)
    assert found.facts.tolist() == [[0, 0, 3], [1, 0, 3], [2, 1, 4]]
    assert found.seen.tolist() == [[0, 0], [0, 1], [1, 2], [2, 1], [2, 2]]
    assert found.held_out == [[2], [], [0]]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "DIR has no train.txt: get it from https://github.com/xiangwang1223/"),
        ({"train.txt": "0 1\n", "test.txt": "0 2\n"}, "DIR has no kg_final.txt: get it from https://github.com/"),
        ({"train.txt": "0 1\n1 x\n"}, "DIR/train.txt, line 2: expected the numbers of a user and of items"),
        (
            {"train.txt": "0 1\n", "test.txt": "0 2\n", "kg_final.txt": "0 1\n"},
            "DIR/kg_final.txt, line 1: expected the numbers of head, relation and tail",
        ),
        ({"train.txt": "0 1\n", "test.txt": "0\n", "kg_final.txt": FACTS}, "DIR/test.txt has no items: get it from"),
        ({"train.txt": "0 1\n", "test.txt": "0 2\n", "kg_final.txt": ""}, "DIR/kg_final.txt is empty: get it from"),
    ],
)
def test_what_is_wrong_with_a_graph_is_one_line(
    read: ModuleType, tmp_path: Path, files: dict[str, str], said: str
) -> None:
    with pytest.raises(SystemExit, match="^" + re.escape(said.replace("DIR", str(tmp_path)))) as ended:
        read.read_graph(write(tmp_path, files))
    assert "\n" not in str(ended.value)


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        (None, {}, "DIR has neither train/pos and train/neg (IMDB) nor train.csv (AG News)"),
        ("imdb", {}, "DIR has no train/neg: get it from https://ai.stanford.edu/~amaas/data/sentiment/"),
        ("imdb", {"train/neg/README": ""}, "DIR/train/neg has no reviews (*.txt): get them from https://ai.stanford"),
        ("ag_news", {}, "DIR has no train.csv: get it from http://groups.di.unipi.it/~gulli/"),
        (
            "ag_news",
            {"train.csv": "Class Index,Title,Description\n"},
            "DIR/train.csv, line 1: expected class (1 to 4), title and description",
        ),
    ],
)
def test_what_is_wrong_with_texts_is_one_line(
    read: ModuleType, tmp_path: Path, name: str | None, files: dict[str, str], said: str
) -> None:
    write(tmp_path, files)
    with pytest.raises(SystemExit, match="^" + re.escape(said.replace("DIR", str(tmp_path)))):
        read.text_set(tmp_path, name).read(tmp_path, "train")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("example", "data", "args"),
    [
        ("text_classification", "imdb", "--seq-len 8 --d-model 8 --layers 1"),
        ("text_classification", "ag_news", "--seq-len 8 --d-model 8 --layers 1 --dataset ag_news"),
        ("kgat", "graph", "--d-model 4 --layers 1"),
    ],
)
def test_an_example_trains_on_it(
    example: str,
    data: str,
    args: str,
    group: None,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import torch

    folder = request.getfixturevalue(data)
    words = [example, "--epochs", "1", "--batch-size", "2", "--data", str(folder), *args.split()]
    monkeypatch.setattr("sys.argv", words)
    script = importlib.import_module(example)
    script.train(script.parse_args(), script.Ranks(0, 1, torch.device("cpu")))
    said = capsys.readouterr().out
    assert re.search(r"epoch +1.*loss \d+\.\d+", said), said


def test_padding_does_not_change_what_a_text_is_taken_for(imdb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    script = importlib.import_module("text_classification")
    monkeypatch.setattr("sys.argv", ["x", "--data", str(imdb), "--seq-len", "8", "--d-model", "8"])
    model = script.Encoder(script.parse_args(), 2).eval()
    short, longer = torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, 6, dtype=torch.long)
    short[0, :3] = longer[0, :3] = torch.tensor([5, 6, 7])
    places = model.places.data
    whole = model(short)
    model.places.data = places[:6]
    assert torch.allclose(model(longer), whole, atol=1e-6)
