"""Train a recommender on a graph of people, films and what is known about the films: actors,
directors, genres ...

    hpcrun submit --gpus 2 --nodes 2 examples/kgat.py --epochs 20 --batch-size 8192

KGAT (Wang et al., 2019), with the same curve on any number of ranks. The two losses take turns: BPR
on who saw what, through the whole graph as a sparse matrix, and TransR on the graph's own facts.
The data is MovieLens-100k with its knowledge graph (movielens.py), or with ``--data`` a folder in
the format of the paper's own data: amazon-book, last-fm and yelp2018 (published_data.py).
"""

from __future__ import annotations

import argparse
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from movielens import films_by_user, ratings, rows
from published_data import Graph, read_graph
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from training import Ranks, RankSampler, Training, add_arguments, join, make_loader

USERS, FILMS = 943, 1682
TOP = 20
HELD_OUT = 0.2
"""The last part of what everybody saw is for the validation."""
USERS_AT_ONCE = 1024
"""Users whose scores of all items are in memory during the validation."""
EVALUATION_AT_MOST = timedelta(hours=2)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser, batch_size=4096, lr=5e-3)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="amazon-book, last-fm or yelp2018 instead of films"
    )
    parser.add_argument("--d-model", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument(
        "--own-shuffle",
        action="store_true",
        help="each rank shuffles a part of its own, and keeps it",
    )
    parser.add_argument(
        "--min-facts", type=int, default=5, help="of MovieLens: leave out what fewer facts speak of"
    )
    args = parser.parse_args()
    if args.static_graph:
        parser.error(
            "--static-graph is not for this training: its two losses use different parameters"
        )
    return args


# --- the data: nodes are people, then films, then what the facts speak of ------------------------


def read_movielens(min_facts: int) -> Graph:
    """Return MovieLens-100k, without what fewer facts speak of."""
    film_of = {entity: f"film {int(film) - 1}" for film, entity in rows("link")}
    facts = [
        (film_of.get(head, head), relation, film_of.get(tail, tail))
        for head, relation, tail in rows("kg")
    ]
    mentioned = Counter(name for head, _, tail in facts for name in (head, tail))
    entities = {f"film {film}": film for film in range(FILMS)}
    for name, times in sorted(mentioned.items()):
        if times >= min_facts:
            entities.setdefault(name, len(entities))
    relations = {
        name: number for number, name in enumerate(sorted({relation for _, relation, _ in facts}))
    }
    kept = [
        (entities[head], relations[relation], entities[tail])
        for head, relation, tail in facts
        if head in entities and tail in entities
    ]
    seen, held_out = read_seen()
    return Graph(USERS, FILMS, len(entities), len(relations), torch.tensor(kept), seen, held_out)


def read_seen() -> tuple[torch.Tensor, list[list[int]]]:
    """Return who saw which film, as rows, and the films of each person that are held out."""
    seen: list[tuple[int, int]] = []
    held_out: list[list[int]] = []
    for history in films_by_user(ratings()):
        cut = round(len(history) * (1 - HELD_OUT))
        seen += [(rating.user, rating.film) for rating in history[:cut]]
        held_out.append([rating.film for rating in history[cut:]])
    return torch.tensor(seen), held_out


def edges_of(graph: Graph) -> torch.Tensor:
    """Return all facts, and who saw what, in both directions: rows of head, relation and tail."""
    pairs = graph.seen + torch.tensor([0, graph.users])
    watched = torch.stack([pairs[:, 0], torch.full((len(pairs),), graph.relations), pairs[:, 1]], 1)
    known = torch.cat([graph.facts + torch.tensor([graph.users, 0, graph.users]), watched])
    # each relation the other way round is another one
    back = known.flip(1) + torch.tensor([0, graph.relations + 1, 0])
    return torch.cat([known, back])


class OwnShuffle(RankSampler):
    """A rank keeps its own part of the data, as published scripts do: more ranks have other
    batches, another curve.
    """

    def __iter__(self) -> Iterator[Any]:
        seed = self.seed + self.epoch * self.num_replicas + self.rank
        order = torch.randperm(self.num_samples, generator=torch.Generator().manual_seed(seed))
        return islice((order * self.num_replicas + self.rank).tolist(), self.done, None)


# --- the model -----------------------------------------------------------------------------------


class KGAT(nn.Module):
    """Nodes take in their neighbours, each with the weight that attention gives to the edge.

    Args:
        edges: rows of head, relation and tail.
    """

    def __init__(
        self, args: argparse.Namespace, edges: torch.Tensor, nodes: int, device: torch.device
    ) -> None:
        super().__init__()
        width, relations = args.d_model, int(edges[:, 1].max()) + 1
        self.nodes = nn.Embedding(nodes, width)
        self.relations = nn.Embedding(relations, width)
        self.to_relation = nn.Parameter(torch.empty(relations, width, width))
        self.sums = nn.ModuleList(nn.Linear(width, width) for _ in range(args.layers))
        self.products = nn.ModuleList(nn.Linear(width, width) for _ in range(args.layers))
        for weight in (self.nodes.weight, self.relations.weight, self.to_relation):
            nn.init.xavier_uniform_(weight)
        # Not a buffer: DDP would send those of the first rank to all others, which it cannot with a
        # sparse matrix.
        self.edges = edges[edges[:, 1].argsort()].to(device)
        self.adjacency = torch.empty(0)  # of attend(), before every epoch

    @torch.no_grad()
    def attend(self) -> torch.Tensor:
        """Return the matrix of the edges' weights: one relation at a time, or each edge would hold
        a matrix.
        """
        node, scores = self.nodes.weight, []
        counts = torch.bincount(self.edges[:, 1], minlength=len(self.to_relation)).tolist()
        for relation, edges in enumerate(self.edges.split(counts)):
            heads, tails = (node[edges[:, end]] @ self.to_relation[relation] for end in (0, 2))
            scores.append((tails * torch.tanh(heads + self.relations.weight[relation])).sum(1))
        ends = self.edges[:, [0, 2]].T
        scored = torch.sparse_coo_tensor(
            ends, torch.cat(scores), (len(node), len(node)), check_invariants=False
        )
        weights: torch.Tensor = torch.sparse.softmax(scored.coalesce(), dim=1)
        return weights

    def spread(self) -> torch.Tensor:
        """Return what every node has become after all layers, side by side."""
        # half precision has no sparse product everywhere
        with torch.autocast(self.edges.device.type, enabled=False):
            hidden = self.nodes.weight
            stages = [hidden]
            for sums, products in zip(self.sums, self.products, strict=True):
                around = torch.sparse.mm(self.adjacency, hidden)
                hidden = functional.leaky_relu(sums(hidden + around)) + functional.leaky_relu(
                    products(hidden * around)
                )
                stages.append(functional.normalize(hidden))
            return torch.cat(stages, 1)

    def forward(
        self,
        first: torch.Tensor,
        second: torch.Tensor,
        drawn: torch.Tensor,
        relation: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a loss against the wrong answers drawn: BPR of people and films, or TransR of
        heads and tails.
        """
        if relation is None:
            node = self.spread()
            better = (node[first] * (node[second] - node[drawn])).sum(1)
            return -functional.logsigmoid(better).mean()
        head, right, wrong = (
            torch.einsum("bi,bij->bj", self.nodes(node), self.to_relation[relation])
            for node in (first, second, drawn)
        )
        away = head + self.relations(relation)
        nearer = ((away - wrong) ** 2).sum(1) - ((away - right) ** 2).sum(1)
        return -functional.logsigmoid(nearer).mean()


class Draws:
    """Random numbers for the rows of a batch: a row has the same ones on whichever rank it is, of
    however many.
    """

    def __init__(self, training: Training, seed: int) -> None:
        self.training, self.seed = training, seed

    def __call__(self, purpose: str, rows: int, below: int) -> torch.Tensor:
        """Return a number from 0 for each of this rank's rows: those of the whole batch are dealt
        out like the rows.
        """
        training, ranks = self.training, self.training.ranks
        batch = f"{purpose} {self.seed} {training.epoch} {training.steps_done}"
        drawing = torch.Generator().manual_seed(zlib.crc32(batch.encode()))
        return torch.randint(below, (rows * ranks.size,), generator=drawing)[
            ranks.rank :: ranks.size
        ].to(ranks.device)


@torch.no_grad()
def recall(model: KGAT, graph: Graph) -> float:
    """Return Recall@20: the share of a person's held-out films among the twenty best guesses, on
    average.
    """
    node = model.spread()
    users, films = node[: graph.users], node[graph.users : graph.users + graph.items]
    total = 0.0
    for first in range(0, graph.users, USERS_AT_ONCE):
        scores = users[first : first + USERS_AT_ONCE] @ films.T
        seen = graph.seen[(graph.seen[:, 0] >= first) & (graph.seen[:, 0] < first + USERS_AT_ONCE)]
        scores[seen[:, 0] - first, seen[:, 1]] = float("-inf")
        best = scores.topk(min(TOP, graph.items)).indices.tolist()
        wanted = graph.held_out[first : first + USERS_AT_ONCE]
        total += sum(
            len({*top} & {*hidden}) / len(hidden)
            for top, hidden in zip(best, wanted, strict=True)
            if hidden
        )
    return total / sum(map(bool, graph.held_out))


def train(args: argparse.Namespace, ranks: Ranks) -> None:
    graph = read_graph(args.data) if args.data else read_movielens(args.min_facts)
    edges, nodes = edges_of(graph), graph.users + graph.entities
    data = TensorDataset(graph.seen[:, 0], graph.users + graph.seen[:, 1])
    shuffle = OwnShuffle(data, seed=args.seed, drop_last=True) if args.own_shuffle else None
    loader = make_loader(data, args, ranks.device, shuffle)
    model = KGAT(args, edges, nodes, ranks.device)
    training = Training(model, args, ranks, find_unused=True)
    # Evaluation on one rank may take longer than a collective may wait, and NCCL's would keep the
    # GPU busy meanwhile.
    patient = dist.new_group(backend="gloo", timeout=EVALUATION_AT_MOST)

    draws = Draws(training, args.seed)

    def bpr(user: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = training.model(
            user, film, graph.users + draws("film", len(user), graph.items)
        )
        return loss

    def transr(user: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        head, relation, tail = model.edges[draws("edge", 2 * len(user), len(edges))].T
        loss: torch.Tensor = training.model(
            head, tail, graph.users + draws("node", len(tail), graph.entities), relation
        )
        return loss

    training.say(
        f"{ranks.size} ranks, {nodes:,} nodes, {len(edges):,} edges, {training.parameters:,} "
        "parameters"
    )
    training.resume()
    while training.goes_on():
        model.adjacency = model.attend()
        epoch = training.train_epoch(loader, bpr, transr)
        if epoch:
            score = torch.zeros(1, dtype=torch.float64)
            if ranks.rank == 0:
                score += recall(model, graph)
            # the others wait here, and all know whether it is the best
            dist.broadcast(score, src=0, group=patient)
            training.end_epoch(epoch, score.item(), "Recall@20")
    training.leave()


def main() -> None:
    args = parse_args()
    train(args, join(args))


if __name__ == "__main__":
    main()
