"""The readers of published data sets, on a few rows in their formats, and a training on each
kind.
"""

from __future__ import annotations

import argparse
import importlib
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.harness import REPO

FACTS = "0 0 3\n1 0 3\n2 1 4\n0 0 3\n"  # one is there twice, as in the published files
SEEN = {"train.txt": "0 1\n", "test.txt": "0 2\n"}
PAIRS, TIMED = (f"read_histories(DIR / 'x.txt', timed={timed})" for timed in (False, True))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The only rank of a training."""
    monkeypatch.syspath_prepend(REPO / "examples")
    for name, value in {
        "WORLD_SIZE": "1",
        "RANK": "0",
        "HPCRUN_CHECKPOINT_DIR": str(tmp_path / "kept"),
    }.items():
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
    return write(
        tmp_path / "aclImdb", {**both, "train/unsup/0_0.txt": "Nobody knows.", "README": "..."}
    )


@pytest.fixture
def ag_news(tmp_path: Path) -> Path:
    rows = (
        '"3","Wall St. Bears","Short-sellers, the ""ultra-cynics""\\nare '
        'back\\green"\n"1","Talks","In Vienna"\n'
    )
    return write(
        tmp_path / "ag_news_csv", {"train.csv": rows, "test.csv": rows, "classes.txt": "World\n"}
    )


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    files = {
        "train.txt": "0 0 1 1\n1 2\n2 1 2 \n",
        # the second user has nothing to be found, as 88 of amazon-book
        "test.txt": "0 2\n1\n2 0\n",
        "kg_final.txt": FACTS,
        "item_list.txt": "org_id remap_id freebase_id\n0553092626 0 m.045wq1q\n",
    }
    return write(tmp_path / "last-fm", files)


@pytest.fixture
def ml_1m(tmp_path: Path) -> Path:
    """40 people, of whom everyone sees each fourth film of 50, in TiSASRec's, SASRec's and
    GroupLens' formats.
    """
    rows = [
        (user + 1, (user + 4 * place) % 50 + 1, 60 * place)
        for user in range(40)
        for place in range(10)
    ]
    files = {
        "ml-1m.txt": "".join(f"{user}\t{film}\t5\t{time}\n" for user, film, time in rows),
        "pairs.txt": "".join(f"{user} {film}\n" for user, film, _ in rows),
        "ratings.dat": "".join(
            f"{user}::{film}::5::{time}\n" for user, film, time in reversed(rows)
        ),
    }
    return write(tmp_path, files) / "ml-1m.txt"


def test_texts_are_read_as_they_were_published(read: ModuleType, imdb: Path, ag_news: Path) -> None:
    texts = read.read_imdb(imdb, "train")
    assert [label for _, label in texts] == [0, 0, 1, 1]
    assert texts[2].text == "A splendid film.  Très bon!"
    assert [tuple(text) for text in read.read_ag_news(ag_news, "train")] == [
        ('Wall St. Bears Short-sellers, the "ultra-cynics" are back green', 2),
        ("Talks In Vienna", 0),
    ]
    for folder, reader in ((imdb, read.read_imdb), (ag_news, read.read_ag_news)):
        assert read.text_set(folder, None).read is reader


@pytest.mark.parametrize("packed", [False, True])
def test_a_graph_has_its_users_items_and_facts(read: ModuleType, graph: Path, packed: bool) -> None:
    if packed:  # amazon-book and yelp2018
        with zipfile.ZipFile(graph / "kg_final.txt.zip", "w") as archive:
            archive.write(graph / "kg_final.txt", "kg_final.txt")
        (graph / "kg_final.txt").unlink()
    found = read.read_graph(graph)
    assert found.users == 3
    assert found.items == 3
    assert found.entities == 5
    assert found.relations == 2
    assert found.facts.tolist() == [[0, 0, 3], [1, 0, 3], [2, 1, 4]]
    assert found.seen.tolist() == [[0, 0], [0, 1], [1, 2], [2, 1], [2, 2]]
    assert found.held_out == [[2], [], [0]]


@pytest.mark.parametrize(
    ("call", "files", "message"),
    [
        (
            "read_graph(DIR)",
            {},
            "DIR has no train.txt: get it from https://github.com/xiangwang1223/",
        ),
        (
            "read_graph(DIR)",
            {"train.txt": "0 1\n1 x\n"},
            "DIR/train.txt, line 2: expected the numbers of a user and",
        ),
        (
            "read_graph(DIR)",
            {**SEEN, "test.txt": "0\n", "kg_final.txt": FACTS},
            "DIR/test.txt has no items: get it",
        ),
        (
            "text_set(DIR, None)",
            {},
            "DIR has neither train/pos and train/neg (IMDB) nor train.csv (AG News)",
        ),
        (
            "read_imdb(DIR, 'train')",
            {"train/neg/README": ""},
            "DIR/train/neg has no reviews (*.txt): get them from",
        ),
        (
            "read_ag_news(DIR, 'train')",
            {"train.csv": "Class,Title\n"},
            "DIR/train.csv, line 1: expected class (1 to",
        ),
        (PAIRS, {}, "--data DIR/x.txt: there is no such file"),
        (
            PAIRS,
            {"x.txt": "1 7\n1 nine\n"},
            "DIR/x.txt, line 2: expected whole numbers: user and item, or user, item,",
        ),
        (
            PAIRS,
            {"x.txt": "1 7\n1 9 5 3\n"},
            "DIR/x.txt, line 2: expected user and item, or user, item, rating and",
        ),
        (PAIRS, {"x.txt": "1 7\n1 9\n2 9\n"}, "DIR/x.txt: no user has 3 items or more"),
        (
            TIMED,
            {"x.txt": "1 7\n"},
            "DIR/x.txt, line 1: expected user, item, rating and time (--time-aware needs the",
        ),
    ],
)
def test_what_is_wrong_with_a_data_set_is_one_line(
    read: ModuleType, tmp_path: Path, call: str, files: dict[str, str], message: str
) -> None:
    write(tmp_path, files)
    with pytest.raises(
        SystemExit, match="^" + re.escape(message.replace("DIR", str(tmp_path)))
    ) as ended:
        eval(call, {**vars(read), "DIR": tmp_path})
    assert "\n" not in str(ended.value)


@pytest.fixture
def train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str], str]:
    """Run an example as a training of one rank; return what it prints."""
    import torch
    import torch.distributed as dist

    def run(example: str, words: str) -> str:
        monkeypatch.setattr("sys.argv", [example, *words.split()])
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            script = importlib.import_module(example)
            torch.manual_seed(0)
            torch.set_num_threads(1)  # the matrices are small: more threads wait for each other
            script.train(script.parse_args(), script.Ranks(0, 1, torch.device("cpu")))
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("example", "data", "args"),
    [
        ("text_classification", "imdb", "--epochs 1 --seq-len 8 --d-model 8 --layers 1"),
        ("kgat", "graph", "--epochs 1 --d-model 4 --layers 1"),
    ],
)
def test_an_example_trains_on_it(
    example: str,
    data: str,
    args: str,
    train: Callable[[str, str], str],
    request: pytest.FixtureRequest,
) -> None:
    output = train(example, f"--batch-size 2 --data {request.getfixturevalue(data)} {args}")
    assert re.search(r"epoch +1.*loss \d+\.\d+", output), output


def test_the_graph_of_movielens_is_learnt(train: Callable[[str, str], str]) -> None:
    output = train("kgat", "--epochs 2 --d-model 16 --layers 1 --min-facts 20")
    (first, _), (last, recall) = re.findall(
        r"epoch +\d+.*loss (\d+\.\d+), Recall@20 (\d+\.\d+)%", output
    )
    assert float(last) < 0.95 * float(first), output
    assert float(recall) > 2 * 100 * 20 / 1682, output  # twice chance


SMALL = "--batch-size 4 --seq-len 10 --d-model 16 --layers 1"


@pytest.mark.parametrize("variant", ["", "--time-aware --mhc"])
def test_each_recommender_learns_from_ml_1m_and_its_checkpoint_is_scored_as_it_was(
    variant: str, train: Callable[[str, str], str], ml_1m: Path, tmp_path: Path
) -> None:
    args = f"{SMALL} --data {ml_1m} {variant}"
    output = train("sasrec", f"{args} --epochs 4 --lr 2e-2")
    assert "40 users, 50 films" in output
    score = output.splitlines()[-1]
    # chance: 10 of 40
    assert float(re.findall(r"everybody's last film: HR@10 ([\d.]+)%", score)[0]) > 60
    scored = train("sasrec", f"{args} --inference-only {tmp_path / 'kept/final.pt'}")
    assert scored.splitlines()[-1] == score
    assert "epoch 1" not in scored
    for wrong in (ml_1m, tmp_path):
        with pytest.raises(
            SystemExit, match=rf"^{wrong}(: Is a directory| is no checkpoint of this model; .*)$"
        ):
            train("sasrec", f"{args} --inference-only {wrong}")


def test_pairs_in_order_are_the_same_histories_as_rows_with_times(
    read: ModuleType, ml_1m: Path
) -> None:
    films = [
        [[rating.film for rating in history] for history in read.read_histories(path, timed=False)]
        for path in (ml_1m, ml_1m.with_name("pairs.txt"), ml_1m.with_name("ratings.dat"))
    ]
    assert films[0][:2] == [list(range(0, 40, 4)), list(range(1, 41, 4))]
    assert films[0] == films[1] == films[2]


def test_layers_with_streams_begin_as_plain_ones_and_their_mixture_is_doubly_stochastic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    script = importlib.import_module("sasrec")
    monkeypatch.setattr("sys.argv", ["x", *SMALL.split(), "--dropout", "0"])
    plain = script.SASRec(args := script.parse_args(), 50)
    args.mhc = True
    streams = script.SASRec(args, 50)
    streams.load_state_dict(plain.state_dict(), strict=False)
    for path in (path for block in streams.blocks for path in block.paths):
        _, _, mixture = path.maps(torch.randn(2, 3, 4, args.d_model))
        assert torch.allclose(mixture.sum(-1), torch.ones(2, 3, 4), atol=1e-4)
        assert torch.allclose(mixture.sum(-2), torch.ones(2, 3, 4), atol=1e-4)
        torch.nn.init.zeros_(path.weight_of_dynamic)
    films, times = torch.randint(1, 51, (4, 10)), torch.zeros(4, 10, dtype=torch.long)
    assert torch.allclose(streams.wishes(films, times), plain.wishes(films, times), atol=1e-5)


def test_padding_does_not_change_what_a_text_is_taken_for(
    imdb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# --- on more ranks the same model: batches and losses do not depend on the number of ranks -------

ARGS = argparse.Namespace(
    seq_len=6, d_model=8, layers=1, heads=2, dropout=0.0, time_aware=True, mhc=True
)


def test_every_rank_draws_the_same_wrong_answers_and_every_batch_others() -> None:
    sasrec = importlib.import_module("sasrec")
    draws = [
        sasrec.draw_films(50, 1682, 0, epoch, step).tolist() for epoch in (1, 2) for step in (0, 1)
    ]
    assert draws[0] == sasrec.draw_films(50, 1682, 0, 1, 0).tolist()
    assert len({tuple(drawn) for drawn in draws}) == 4
    assert all(1 <= film <= 1682 for drawn in draws for film in drawn)
    assert len(sasrec.draw_films(50, 1682, 2**40, 10**6, 3)) == 50


def test_the_gradients_of_ranks_together_are_those_of_one_rank() -> None:
    import torch

    sasrec = importlib.import_module("sasrec")
    torch.manual_seed(0)
    model = sasrec.SASRec(ARGS, 1682)
    films = torch.randint(1, 1682 + 1, (8, 7))
    for row in range(8):
        films[row, 7 - row % 4 :] = sasrec.PADDING  # pieces are not equally long
    times = torch.arange(7).repeat(8, 1) * 3600
    drawn = sasrec.draw_films(16, 1682, 0, 1, 0)
    counted = int((films[:, 1:] != sasrec.PADDING).sum())

    def gradients(ranks: int) -> list[torch.Tensor]:
        """Return the mean over ranks, as DDP takes it; each has its rows of the batch."""
        model.zero_grad()
        for rank in range(ranks):
            own, seen = films[rank::ranks], times[rank::ranks]
            loss = model(own[:, :-1], seen[:, :-1], own[:, 1:], drawn) * ranks / counted
            (loss / ranks).backward()
        return [
            parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
        ]

    for together, alone in zip(gradients(2), gradients(1), strict=True):
        assert torch.allclose(together, alone, atol=1e-6)


def test_a_row_has_the_same_draws_on_whichever_rank_it_is() -> None:
    import torch

    kgat = importlib.import_module("kgat")

    def draws(rank: int, ranks: int) -> list[int]:
        at = SimpleNamespace(rank=rank, size=ranks, device=torch.device("cpu"))
        training = SimpleNamespace(ranks=at, epoch=2, steps_done=5)
        return list(kgat.Draws(training, 0)("film", 8 // ranks, 1000).tolist())

    whole = draws(0, 1)
    assert [draws(rank, 4) for rank in range(4)] == [whole[rank::4] for rank in range(4)]


@pytest.fixture
def training(tmp_path: Path) -> Iterator[ModuleType]:
    """What the examples share, in the only rank of a training."""
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    yield importlib.import_module("training")
    dist.destroy_process_group()


def trained(shared: ModuleType, **more: Any) -> Any:
    """A training of one weight."""
    import torch

    torch.manual_seed(0)
    values = {
        "batch_size": 8,
        "lr": 0.1,
        "epochs": 9,
        "precision": "fp32",
        "warmup_steps": 0,
        "keep": 0,
        **more,
    }
    args = argparse.Namespace(static_graph=False, compile=False, **values)
    return shared.Training(torch.nn.Linear(1, 1), args, shared.Ranks(0, 1, torch.device("cpu")))


def test_a_batch_in_parts_gives_the_gradient_of_the_whole(training: ModuleType) -> None:
    import torch

    data = torch.arange(8.0)[:, None]
    weights = []
    for accumulate in (1, 2, 4):
        one = trained(training, accumulate=accumulate)
        model = one.model
        losses = [
            float(
                one.step(lambda x, y, model=model: (model(x) - y).square().mean(), (data, 3 * data))
            )
            for _ in range(3)
        ]
        weights.append((one.model.module.weight.item(), losses))
    for weight, losses in weights[1:]:
        assert weight == pytest.approx(weights[0][0], rel=1e-5)
        assert losses == pytest.approx(weights[0][1], rel=1e-5)


def test_the_learning_rate_grows_to_its_value_and_old_checkpoints_go(
    training: ModuleType, tmp_path: Path
) -> None:
    import torch

    one = trained(training, warmup_steps=4, keep=2)
    data = torch.ones(8, 1)
    rates = []
    for _ in range(6):
        one.step(lambda x: one.model(x).square().mean(), (data,))
        rates.append(one.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert one.updates == 6
    assert one.skipped == 0
    epoch = training.Epoch(time_s=1.0, steps=6)
    for _ in range(4):
        one.end_epoch(epoch, 0.5)
    kept = sorted(path.name for path in tmp_path.glob("kept/epoch*"))
    assert kept == ["epoch-0003.pt", "epoch-0004.pt"]
    again = trained(training, warmup_steps=4)
    again.resume()
    assert again.epoch == 5
    assert again.updates == 6


def test_an_overflow_skips_its_step_and_an_epoch_of_nothing_else_ends_the_training(
    training: ModuleType,
) -> None:
    import torch

    one = trained(training)
    one.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = one.model.module.weight.item()
    one.step(lambda x: (one.model(x) * float("inf")).mean(), (torch.ones(8, 1),))
    assert one.model.module.weight.item() == before
    assert one.updates == 0
    assert one.skipped == 1
    assert one.scaler.get_scale() == 2.0
    with pytest.raises(SystemExit, match="overflowed in float16"):
        one.end_epoch(training.Epoch(time_s=1.0, steps=1), 0.5)
