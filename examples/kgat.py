"""Train a recommender on a graph of people, films and what is known about the films: actors, directors, genres ...

    hpcrun submit --gpus 2 --nodes 2 examples/kgat.py --epochs 20 --batch-size 8192

KGAT (Wang et al., 2019). The two losses take turns: BPR on who saw what, through the whole graph as a sparse matrix,
and TransR on the graph's own facts. The data is MovieLens-100k with its knowledge graph; see movielens.py.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from movielens import films_by_user, ratings, rows
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from training import Ranks, RankSampler, Training, add_arguments, join, make_loader

USERS, FILMS = 943, 1682
TOP = 20
HELD_OUT = 0.2
"""The last part of what everybody saw is for the validation."""
EVALUATION_AT_MOST = timedelta(hours=2)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser, batch_size=4096, lr=5e-3)
    parser.add_argument("--d-model", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--min-facts", type=int, default=5, help="leave out what fewer facts speak of")
    args = parser.parse_args()
    if args.static_graph:
        parser.error("--static-graph is not for this training: its two losses use different parameters")
    return args


# --- the data: nodes are people, then films, then what the facts speak of --------------------------------------------


def read_facts(min_facts: int) -> tuple[torch.Tensor, int, int]:
    """Return the facts as rows of head, relation and tail, and how many nodes and relations there are."""
    film_of = {entity: f"film {int(film) - 1}" for film, entity in rows("link")}
    facts = [(film_of.get(head, head), relation, film_of.get(tail, tail)) for head, relation, tail in rows("kg")]
    mentioned = Counter(name for head, _, tail in facts for name in (head, tail))
    nodes = {f"film {film}": USERS + film for film in range(FILMS)}
    for name, times in sorted(mentioned.items()):
        if times >= min_facts:
            nodes.setdefault(name, USERS + len(nodes))
    relations = {name: number for number, name in enumerate(sorted({relation for _, relation, _ in facts}))}
    kept = [
        (nodes[head], relations[relation], nodes[tail])
        for head, relation, tail in facts
        if head in nodes and tail in nodes
    ]
    return torch.tensor(kept), USERS + len(nodes), len(relations)


def read_seen() -> tuple[torch.Tensor, list[list[int]]]:
    """Return who saw which film, as rows, and the films of each person that are held out."""
    seen: list[tuple[int, int]] = []
    held_out: list[list[int]] = []
    for history in films_by_user(ratings()):
        cut = round(len(history) * (1 - HELD_OUT))
        seen += [(rating.user, rating.film) for rating in history[:cut]]
        held_out.append([rating.film for rating in history[cut:]])
    return torch.tensor(seen), held_out


class OwnShuffle(RankSampler):
    """A rank keeps its own part of the data, and shuffles it with a seed of its own."""

    def __iter__(self) -> Iterator[Any]:
        seed = self.seed + self.epoch * self.num_replicas + self.rank
        order = torch.randperm(self.num_samples, generator=torch.Generator().manual_seed(seed))
        return islice((order * self.num_replicas + self.rank).tolist(), self.done, None)


# --- the model ----------------------------------------------------------------------------------------------------


class KGAT(nn.Module):
    """Nodes take in their neighbours, each with the weight that attention gives to the edge.

    Args:
        edges: rows of head, relation and tail.
    """

    def __init__(self, args: argparse.Namespace, edges: torch.Tensor, nodes: int, device: torch.device) -> None:
        super().__init__()
        width, relations = args.d_model, int(edges[:, 1].max()) + 1
        self.nodes = nn.Embedding(nodes, width)
        self.relations = nn.Embedding(relations, width)
        self.to_relation = nn.Parameter(torch.empty(relations, width, width))
        self.sums = nn.ModuleList(nn.Linear(width, width) for _ in range(args.layers))
        self.products = nn.ModuleList(nn.Linear(width, width) for _ in range(args.layers))
        for weight in (self.nodes.weight, self.relations.weight, self.to_relation):
            nn.init.xavier_uniform_(weight)
        # Not a buffer: DDP would send those of the first rank to all others, which it cannot with a sparse matrix.
        self.edges = edges[edges[:, 1].argsort()].to(device)
        self.adjacency = torch.empty(0)  # of attend(), before every epoch

    @torch.no_grad()
    def attend(self) -> torch.Tensor:
        """Return the matrix of the edges' weights: one relation at a time, or each edge would hold a matrix."""
        node, scores = self.nodes.weight, []
        counts = torch.bincount(self.edges[:, 1], minlength=len(self.to_relation)).tolist()
        for relation, edges in enumerate(self.edges.split(counts)):
            heads, tails = (node[edges[:, end]] @ self.to_relation[relation] for end in (0, 2))
            scores.append((tails * torch.tanh(heads + self.relations.weight[relation])).sum(1))
        ends = self.edges[:, [0, 2]].T
        scored = torch.sparse_coo_tensor(ends, torch.cat(scores), (len(node), len(node)), check_invariants=False)
        weights: torch.Tensor = torch.sparse.softmax(scored.coalesce(), dim=1)
        return weights

    def spread(self) -> torch.Tensor:
        """Return what every node has become after all layers, side by side."""
        with torch.autocast(self.edges.device.type, enabled=False):  # half precision has no sparse product everywhere
            hidden = self.nodes.weight
            stages = [hidden]
            for sums, products in zip(self.sums, self.products, strict=True):
                around = torch.sparse.mm(self.adjacency, hidden)
                hidden = functional.leaky_relu(sums(hidden + around)) + functional.leaky_relu(products(hidden * around))
                stages.append(functional.normalize(hidden))
            return torch.cat(stages, 1)

    def forward(self, first: torch.Tensor, second: torch.Tensor, relation: torch.Tensor | None = None) -> torch.Tensor:
        """Return a loss: BPR of people and films, or with relations TransR of heads and tails."""
        if relation is None:
            node = self.spread()
            drawn = USERS + torch.randint_like(second, FILMS)
            better = (node[first] * (node[second] - node[drawn])).sum(1)
            return -functional.logsigmoid(better).mean()
        drawn = torch.randint_like(second, USERS, len(self.nodes.weight))
        head, right, wrong = (
            torch.einsum("bi,bij->bj", self.nodes(node), self.to_relation[relation]) for node in (first, second, drawn)
        )
        away = head + self.relations(relation)
        nearer = ((away - wrong) ** 2).sum(1) - ((away - right) ** 2).sum(1)
        return -functional.logsigmoid(nearer).mean()


@torch.no_grad()
def recall(model: KGAT, seen: torch.Tensor, held_out: list[list[int]]) -> float:
    """Return Recall@20: the share of a person's held-out films among the twenty best guesses, on average."""
    node = model.spread()
    scores = node[:USERS] @ node[USERS : USERS + FILMS].T
    scores[seen[:, 0], seen[:, 1]] = float("-inf")
    best = scores.topk(TOP).indices.tolist()
    return sum(len({*top} & {*films}) / len(films) for top, films in zip(best, held_out, strict=True)) / USERS


def train(args: argparse.Namespace, ranks: Ranks) -> None:
    facts, nodes, relations = read_facts(args.min_facts)
    seen, held_out = read_seen()
    pairs = seen + torch.tensor([0, USERS])
    watched = torch.stack([pairs[:, 0], torch.full((len(pairs),), relations), pairs[:, 1]], 1)
    known = torch.cat([facts, watched])
    back = known.flip(1) + torch.tensor([0, relations + 1, 0])  # every relation the other way round as well
    edges = torch.cat([known, back])
    data = TensorDataset(pairs[:, 0], pairs[:, 1])
    loader = make_loader(data, args, ranks.device, OwnShuffle(data, seed=args.seed, drop_last=True))
    model = KGAT(args, edges, nodes, ranks.device)
    training = Training(model, args, ranks, find_unused=True)
    # Evaluation on one rank may take longer than a collective may wait, and NCCL's would keep the GPU busy meanwhile.
    patient = dist.new_group(backend="gloo", timeout=EVALUATION_AT_MOST)

    def bpr(user: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = training.model(user, film)
        return loss

    def transr(user: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        head, relation, tail = model.edges[torch.randint(len(edges), (2 * len(user),), device=user.device)].T
        loss: torch.Tensor = training.model(head, tail, relation)
        return loss

    training.say(f"{ranks.size} ranks, {nodes:,} nodes, {len(edges):,} edges, {training.parameters:,} parameters")
    training.resume()
    while training.goes_on():
        model.adjacency = model.attend()
        epoch = training.train_epoch(loader, bpr, transr)
        if epoch:
            score = torch.zeros(1, dtype=torch.float64)
            if ranks.rank == 0:
                score += recall(model, seen, held_out)
            dist.broadcast(score, src=0, group=patient)  # the others wait here, and all know whether it is the best
            training.end_epoch(epoch, score.item(), "Recall@20")
    training.leave()


def main() -> None:
    args = parse_args()
    train(args, join(args))


if __name__ == "__main__":
    main()
