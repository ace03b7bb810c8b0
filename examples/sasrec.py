"""Train a self-attentive recommender: from the films that a person has seen, which one comes next?

    hpcrun submit --gpus 4 --nodes 2 --requeue 3 examples/sasrec.py --epochs 50 --batch-size 256

SASRec (Kang and McAuley, 2018), trained against sampled negatives, which are the same for a batch
on any number of
ranks: without dropout, one rank and four have the same curve. With ``--time-aware``, how long ago a
film was seen counts as well, as in TiSASRec (Li, Wang and McAuley, 2020). With ``--mhc``, each
layer reads and writes four streams instead of one, as in mHC (Xie et al., 2025). The data is
MovieLens-100k (movielens.py), or with ``--data`` a file in the format of ml-1m (published_data.py).
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from movielens import Rating, films_by_user, ratings
from published_data import read_histories
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset
from training import Ranks, Training, add_arguments, join, make_loader, sum_over_ranks

PADDING = 0  # films are counted from 1 here
TOP = 10
INTERVALS = 32
"""Lengths of time that are told apart: each is twice the one before, from a second to years."""
STREAMS = 4
"""Of --mhc, as in its paper."""
SINKHORN_ROUNDS = 20


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser, batch_size=128, lr=2e-3)
    parser.add_argument(
        "--seq-len", type=int, default=50, help="films of a person that are looked back at"
    )
    parser.add_argument("--d-model", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument(
        "--negatives", type=int, default=128, help="films drawn for each batch as wrong answers"
    )
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument(
        "--time-aware", action="store_true", help="TiSASRec: how long ago a film was seen counts"
    )
    parser.add_argument(
        "--mhc",
        action="store_true",
        help="manifold-constrained hyper-connections between the layers",
    )
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="lines of user and item, in order, as ml-1m.txt"
    )
    parser.add_argument(
        "--inference-only", type=Path, metavar="CHECKPOINT", help="do not train: score a checkpoint"
    )
    args = parser.parse_args()
    if args.d_model % args.heads:
        parser.error(f"--d-model {args.d_model} cannot be divided by --heads {args.heads}")
    return args


# --- the data ------------------------------------------------------------------------------------


class Histories(Dataset[tuple[torch.Tensor, ...]]):
    """Pieces of what people saw: films, when they were seen, and after each of them the film that
    came next.

    The ends are padded. A film looks only back, so that no other one ever sees the padding.
    """

    def __init__(self, pieces: list[list[Rating]], length: int) -> None:
        self.films = torch.full((len(pieces), length + 1), PADDING)
        self.times = torch.zeros(len(pieces), length + 1, dtype=torch.long)
        for row, piece in enumerate(pieces):
            self.films[row, : len(piece)] = torch.tensor([rating.film + 1 for rating in piece])
            self.times[row, : len(piece)] = torch.tensor([rating.time_s for rating in piece])

    def __len__(self) -> int:
        return len(self.films)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, ...]:
        films, times = self.films[number], self.times[number]
        return films[:-1], times[:-1], films[1:]


def training_pieces(histories: list[list[Rating]], length: int) -> list[list[Rating]]:
    """Leave out everybody's last two films, and cut the rest so that every step to a next film is
    in one piece.
    """
    kept = [history[:-2] for history in histories]
    return [
        seen[first : first + length + 1]
        for seen in kept
        for first in range(0, len(seen) - 1, length)
    ]


# --- the model -----------------------------------------------------------------------------------


class Residual(nn.Module):
    """What a layer returns is added to what it was given."""

    def forward(
        self, hidden: torch.Tensor, layer: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        return hidden + layer(hidden)


class Streams(nn.Module):
    """mHC, arXiv:2512.24880: a layer reads a mixture of the streams and writes to all; they are
    mixed with each other.

    The matrix of that mixture is doubly stochastic, so that no number of layers makes the signal
    grow or vanish. At the start, all streams are alike and a layer does what Residual does.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dynamic = nn.Linear(STREAMS * width, STREAMS * (STREAMS + 2), bias=False)
        self.weight_of_dynamic = nn.Parameter(torch.full((3,), 0.01))
        # sigmoid: 1 / STREAMS
        self.read = nn.Parameter(torch.full((STREAMS,), -math.log(STREAMS - 1)))
        self.write = nn.Parameter(torch.zeros(STREAMS))
        self.mix = nn.Parameter(4.0 * torch.eye(STREAMS))

    def maps(self, streams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return for each place how the streams are read, written and mixed."""
        flat = streams.flatten(2)
        parts = self.dynamic(functional.rms_norm(flat, flat.shape[-1:])).split(
            [STREAMS, STREAMS, STREAMS**2], -1
        )
        read, write, mix = (
            part * weight for part, weight in zip(parts, self.weight_of_dynamic, strict=True)
        )
        logits = mix.unflatten(-1, (STREAMS, STREAMS)) + self.mix
        for _ in range(SINKHORN_ROUNDS):
            logits = logits.log_softmax(-1).log_softmax(-2)
        return torch.sigmoid(read + self.read), 2 * torch.sigmoid(write + self.write), logits.exp()

    def forward(
        self, streams: torch.Tensor, layer: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        # else the matrix would not be doubly stochastic
        with torch.autocast(streams.device.type, enabled=False):
            read, write, mix = self.maps(streams)
            mixed = mix @ streams
        return mixed + write[..., None] * layer((read[..., None] * streams).sum(2))[:, :, None]


class Attention(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.heads, self.dropout = args.heads, args.dropout
        self.queries_keys_values = nn.Linear(args.d_model, 3 * args.d_model)
        self.out = nn.Linear(args.d_model, args.d_model)
        self.intervals = (
            nn.Embedding(INTERVALS, args.d_model // args.heads) if args.time_aware else None
        )

    def forward(self, hidden: torch.Tensor, ago: torch.Tensor) -> torch.Tensor:
        batch, length, _ = hidden.shape
        parts = (
            self.queries_keys_values(hidden)
            .view(batch, length, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        queries, keys, values = parts
        mask = None
        if self.intervals is not None:
            # query · interval, for each interval once, then looked up: a key for each pair would
            # not fit in memory.
            scores = (
                queries @ self.intervals.weight.T.to(queries.dtype) / math.sqrt(queries.shape[-1])
            )
            mask = scores.gather(3, ago[:, None].expand(-1, self.heads, -1, -1))
            later = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
            mask = mask.masked_fill(later, float("-inf"))
        mixed = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            mask,
            self.dropout if self.training else 0.0,
            is_causal=mask is None,
        )
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(hidden.shape))
        return out


class Block(nn.Module):
    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        width = args.d_model
        self.attention, self.dropout = Attention(args), nn.Dropout(args.dropout)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.paths = nn.ModuleList(Streams(width) if args.mhc else Residual() for _ in range(2))

    def forward(self, hidden: torch.Tensor, ago: torch.Tensor) -> torch.Tensor:
        attended = self.paths[0](
            hidden, lambda given: self.dropout(self.attention(self.before(given), ago))
        )
        wider: torch.Tensor = self.paths[1](
            attended, lambda given: self.dropout(self.feed_forward(self.between(given)))
        )
        return wider


class SASRec(nn.Module):
    def __init__(self, args: argparse.Namespace, films: int) -> None:
        super().__init__()
        self.mhc = args.mhc
        self.films = nn.Embedding(films + 1, args.d_model, padding_idx=PADDING)
        self.places = nn.Parameter(torch.randn(args.seq_len, args.d_model) * 0.02)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.layers))
        self.norm, self.dropout = nn.LayerNorm(args.d_model), nn.Dropout(args.dropout)
        nn.init.normal_(self.films.weight, std=args.d_model**-0.5)

    def wishes(self, films: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Return after each film the vector that the next one's should be like."""
        ago = (times[:, :, None] - times[:, None, :]).clamp(min=0)
        ago = torch.log2(ago + 1.0).long().clamp(max=INTERVALS - 1)
        hidden = self.dropout(self.films(films) + self.places)
        if self.mhc:
            hidden = hidden[:, :, None].expand(-1, -1, STREAMS, -1)
        for block in self.blocks:
            hidden = block(hidden, ago)
        wishes: torch.Tensor = self.norm(hidden.mean(2) if self.mhc else hidden)
        return wishes

    def forward(
        self, films: torch.Tensor, times: torch.Tensor, following: torch.Tensor, drawn: torch.Tensor
    ) -> torch.Tensor:
        """Return the sum of the losses: the film that followed is to be told from those drawn."""
        seen = following != PADDING
        wishes, right = self.wishes(films, times)[seen], following[seen]
        right_scores = (wishes * self.films(right)).sum(1, keepdim=True)
        wrong_scores = wishes @ self.films(drawn).T.to(wishes.dtype)
        wrong_scores = wrong_scores.masked_fill(drawn == right[:, None], float("-inf"))
        scores = torch.cat([right_scores, wrong_scores], 1).float()
        answers = torch.zeros(len(scores), dtype=torch.long, device=films.device)
        return functional.cross_entropy(scores, answers, reduction="sum")


def draw_films(number: int, films: int, seed: int, epoch: int, step: int) -> torch.Tensor:
    """Return the wrong answers for a batch: every rank draws the same, or more ranks would train
    another model.
    """
    # torch's generator on CPUs reads only 32 bits of a seed
    drawing = torch.Generator().manual_seed(zlib.crc32(f"{seed} {epoch} {step}".encode()))
    return torch.randint(1, films + 1, (number,), generator=drawing)


@torch.no_grad()
def hits(training: Training, histories: list[list[Rating]], length: int) -> tuple[float, float]:
    """Return HR@10 and NDCG@10 of the last film of each history, among all films not seen before.

    Among a hundred films drawn, as papers do, a model looks better than it is (Krichene and Rendle,
    2020).
    """
    training.model.eval()
    ranks, model = training.ranks, training.model.module
    part = histories[ranks.rank :: ranks.size]
    hits, gain = 0.0, 0.0
    for first in range(0, len(part), 256):
        some = part[first : first + 256]
        data = Histories([history[-length - 1 :] for history in some], length)
        films, times = data.films.to(ranks.device), data.times.to(ranks.device)
        last = (films != PADDING).sum(1) - 1  # the place of the film to be found
        rows = torch.arange(len(some), device=ranks.device)
        answers = films[rows, last]
        films[rows, last] = PADDING
        with training.autocast():
            wishes = model.wishes(films[:, :-1], times[:, :-1])[rows, last - 1]
            scores = (wishes @ model.films.weight.T.to(wishes.dtype)).float()
        answer_scores = scores[rows, answers, None]  # in some data, a person sees a film twice
        scores[:, PADDING] = float("-inf")
        for row, history in enumerate(some):
            scores[row, [rating.film + 1 for rating in history[:-1]]] = float("-inf")
        place = (scores > answer_scores).sum(1)
        hits += float((place < TOP).sum())
        gain += float((1 / torch.log2(place + 2.0))[place < TOP].sum())
    all_found, all_gain = sum_over_ranks(ranks.device, hits, gain)
    return all_found / len(histories), all_gain / len(histories)


def train(args: argparse.Namespace, ranks: Ranks) -> None:
    histories = (
        read_histories(args.data, timed=args.time_aware) if args.data else films_by_user(ratings())
    )
    vocabulary = 1 + max(rating.film for history in histories for rating in history)
    loader = make_loader(
        Histories(training_pieces(histories, args.seq_len), args.seq_len), args, ranks.device
    )
    training = Training(SASRec(args, vocabulary), args, ranks)

    def loss_of(films: torch.Tensor, times: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """Return the mean over all ranks' films: DDP takes the mean over ranks, whose pieces are
        not equally long.
        """
        counted = (following != PADDING).sum()
        dist.all_reduce(counted)
        drawn = draw_films(
            args.negatives, vocabulary, args.seed, training.epoch, training.steps_done
        ).to(films.device)
        loss: torch.Tensor = training.model(films, times, following, drawn) * ranks.size / counted
        return loss

    training.say(
        f"{ranks.size} ranks, {ranks.device.type}, {training.parameters:,} parameters, "
        f"{training.dtype}"
    )
    training.say(f"{len(histories):,} users, {vocabulary:,} films")
    if args.inference_only:
        training.load_weights(args.inference_only)
    else:
        training.resume()
    while training.goes_on() and not args.inference_only:
        epoch = training.train_epoch(loader, loss_of)
        if epoch:
            hit_rate, gain = hits(training, [history[:-1] for history in histories], args.seq_len)
            training.end_epoch(epoch, hit_rate, "HR@10", ndcg=gain)
    if not training.stopping:
        hit_rate, gain = hits(training, histories, args.seq_len)
        training.say(f"everybody's last film: HR@10 {hit_rate:.1%}, NDCG@10 {gain:.4f}")
    training.leave()


def main() -> None:
    args = parse_args()
    train(args, join(args))


if __name__ == "__main__":
    main()
