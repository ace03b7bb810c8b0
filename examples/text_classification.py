"""Train a small transformer encoder to tell which package of Python's standard library a passage of
source is from.

    hpcrun submit --gpus 4 --nodes 2 examples/text_classification.py --d-model 256 --layers 4
    --batch-size 256

Its size decides whether more GPUs make it faster. This one does well by it:

    ... --d-model 512 --layers 6 --seq-len 512 --batch-size 512 --samples 100000

and this one gets slower, for its ranks spend their time on synchronising tiny steps:

    ... --d-model 128 --layers 2 --seq-len 128 --batch-size 32

With ``--data`` a folder with the published files of IMDB (film reviews) or AG News is learnt
instead; see published_data.py.
"""

from __future__ import annotations

import argparse
import re
import sysconfig
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from published_data import TEXT_SETS, Text, text_set
from torch import nn
from torch.utils.data import Dataset
from training import Ranks, Training, add_arguments, join, make_loader, share_of, sum_over_ranks

PACKAGES = (
    "asyncio",
    "email",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "xml",
)
"""The classes: source that lies on every compute node that has Python.

Chance is right one time in ten.
"""
HELD_OUT = 0.1
"""The end of every file is for the validation."""
SAMPLES, VALIDATION_SAMPLES = 4096, 1000
PADDING = 0  # words are counted from 1


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser, batch_size=64, lr=1e-3)
    parser.add_argument(
        "--accumulate", type=int, default=1, help="parts of a batch that a rank computes in turn"
    )
    parser.add_argument(
        "--samples", type=int, help=f"passages of an epoch: {SAMPLES}, or all texts of --data"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="IMDB's folder aclImdb, or AG News' with train.csv"
    )
    parser.add_argument(
        "--dataset", choices=sorted(TEXT_SETS), help="default: the one whose files are in --data"
    )
    parser.add_argument("--seq-len", type=int, default=64, help="words of a passage")
    parser.add_argument("--d-model", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=4096)
    args = parser.parse_args()
    if args.dataset and not args.data:
        parser.error(f"--dataset {args.dataset} needs --data DIR, the folder with its files")
    if args.vocabulary < 2:
        parser.error("--vocabulary has to be 2 or more: one number is for padding")
    if args.d_model % args.heads:
        parser.error(f"--d-model {args.d_model} cannot be divided by --heads {args.heads}")
    return args


# --- the data ------------------------------------------------------------------------------------


@cache
def number_of(token: str, vocabulary: int) -> int:
    # the same on every rank; Python's own hash() is not
    return 1 + zlib.crc32(token.encode()) % (vocabulary - 1)


def numbers_of(text: str, vocabulary: int) -> list[int]:
    return [number_of(token, vocabulary) for token in re.findall(r"\w+|[^\w\s]", text)]


def read_package(package: str, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the words of a package as numbers: those to train on, and those to validate with."""
    files = sorted(Path(sysconfig.get_path("stdlib"), package).rglob("*.py"))
    train: list[int] = []
    held_out: list[int] = []
    for file in files:
        numbers = numbers_of(file.read_text(errors="replace"), vocabulary)
        cut = round(len(numbers) * (1 - HELD_OUT))
        train += numbers[:cut]
        held_out += numbers[cut:]
    if not held_out:
        raise SystemExit(
            f"this Python has no source of its package {package}: take another with --python"
        )
    return torch.tensor(train), torch.tensor(held_out)


class Passages(Dataset[tuple[torch.Tensor, int]]):
    """Passages that begin at random places, the same for every rank: as many of each package."""

    def __init__(self, texts: list[torch.Tensor], samples: int, seq_len: int, seed: int) -> None:
        shortest = min(len(text) for text in texts)
        if seq_len > shortest:
            raise SystemExit(
                f"--seq-len {seq_len} is longer than the shortest text, which has {shortest} words"
            )
        self.texts, self.seq_len = texts, seq_len
        self.places = torch.rand(samples, generator=torch.Generator().manual_seed(seed)).tolist()

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        label = number % len(self.texts)
        text = self.texts[label]
        start = int(self.places[number] * (len(text) - self.seq_len + 1))
        return text[start : start + self.seq_len], label


class Documents(Dataset[tuple[torch.Tensor, int]]):
    """The first words of texts; the ends of short ones are padded.

    Args:
        samples: how many texts, drawn the same for every rank; without it, all.
    """

    def __init__(self, texts: list[Text], samples: int | None, args: argparse.Namespace) -> None:
        drawn = torch.randperm(len(texts), generator=torch.Generator().manual_seed(args.seed))[
            :samples
        ].tolist()
        self.words = torch.full((len(drawn), args.seq_len), PADDING)
        self.labels = [texts[number].label for number in drawn]
        for row, number in enumerate(drawn):
            # A text without a word counts as one unknown word: attention cannot look at padding
            # alone.
            words = numbers_of(texts[number].text.lower(), args.vocabulary)[: args.seq_len] or [1]
            self.words[row, : len(words)] = torch.tensor(words)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return self.words[number], self.labels[number]


class Data(NamedTuple):
    """What is learnt and what is tested, of how many classes."""

    train: Passages | Documents
    held_out: Passages | Documents
    classes: int


def read_data(args: argparse.Namespace) -> Data:
    """Return the texts of ``--data``, or those of Python's own library."""
    if args.data:
        data = text_set(args.data, args.dataset)
        train, test = (data.read(args.data, part) for part in ("train", "test"))
        return Data(Documents(train, args.samples, args), Documents(test, None, args), data.classes)
    texts = [read_package(package, args.vocabulary) for package in PACKAGES]
    train_texts, held_out = ([pair[part] for pair in texts] for part in (0, 1))
    return Data(
        Passages(train_texts, args.samples or SAMPLES, args.seq_len, args.seed),
        Passages(held_out, VALIDATION_SAMPLES, args.seq_len, args.seed),
        len(PACKAGES),
    )


# --- the model -----------------------------------------------------------------------------------


class Encoder(nn.Module):
    def __init__(self, args: argparse.Namespace, classes: int) -> None:
        super().__init__()
        self.padded = args.data is not None  # attention without a mask is faster
        self.words = nn.Embedding(args.vocabulary, args.d_model)
        self.places = nn.Parameter(torch.randn(args.seq_len, args.d_model) * 0.02)
        layer = nn.TransformerEncoderLayer(
            args.d_model,
            args.heads,
            4 * args.d_model,
            dropout=0.1,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(
            layer, args.layers, nn.LayerNorm(args.d_model), enable_nested_tensor=False
        )
        self.head = nn.Linear(args.d_model, classes)

    def forward(self, passages: torch.Tensor) -> torch.Tensor:
        padding = passages == PADDING if self.padded else None
        hidden: torch.Tensor = self.layers(
            self.words(passages) + self.places, src_key_padding_mask=padding
        )
        if padding is None:
            mean = hidden.mean(1)
        else:
            mean = hidden.masked_fill(padding[:, :, None], 0).sum(1) / (~padding).sum(
                1, keepdim=True
            )
        logits: torch.Tensor = self.head(mean)
        return logits


@torch.no_grad()
def accuracy(training: Training, data: Passages | Documents) -> float:
    """Return the share of passages whose class is found, each rank testing its part."""
    training.model.eval()
    ranks, right, tested = training.ranks, 0, 0
    numbers = range(ranks.rank, len(data), ranks.size)
    for first in range(0, len(numbers), 128):
        passages, labels = zip(
            *(data[number] for number in numbers[first : first + 128]), strict=True
        )
        with training.autocast():
            answers = training.model.module(torch.stack(passages).to(ranks.device)).argmax(1)
        right += int((answers.cpu() == torch.tensor(labels)).sum())
        tested += len(labels)
    all_right, all_tested = sum_over_ranks(ranks.device, right, tested)
    return all_right / all_tested


def train(args: argparse.Namespace, ranks: Ranks) -> None:
    data = read_data(args)
    loader = make_loader(data.train, args, ranks.device)
    if args.accumulate < 1 or share_of(args.batch_size) % args.accumulate:
        raise SystemExit(
            f"--accumulate {args.accumulate} must divide a rank's batch, "
            f"{share_of(args.batch_size)}"
        )
    training = Training(Encoder(args, data.classes), args, ranks)

    def loss_of(tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(training.model(tokens), labels)

    training.say(
        f"{ranks.size} ranks, {ranks.device.type}, {training.parameters:,} parameters, "
        f"{training.dtype}"
    )
    training.resume()
    while training.goes_on():
        epoch = training.train_epoch(loader, loss_of)
        if epoch:
            training.end_epoch(epoch, accuracy(training, data.held_out))
    training.leave()


def main() -> None:
    args = parse_args()
    train(args, join(args))


if __name__ == "__main__":
    main()
