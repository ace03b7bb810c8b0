"""hpcrun explain on the benchmark of GPUAlert (arXiv 2607.01409): `python benchmarks/gpualert.py`.

It fetches https://github.com/Parv-01/gpualert-eval (MIT) at COMMIT, explains each of its logs, and
scores the answers with its own functions, beside its own grep and the figures that it publishes for
gpualert. docs/measured.md says what is not comparable. It exits with 1 where a demand is not met.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from hpcrun.explain.any_job_or_log import explain_logs
from hpcrun.explain.diagnosis.rules import load_rules

ADDRESS = "https://github.com/Parv-01/gpualert-eval"
COMMIT = "f402b79fec11832bfb30aa02a8ca5fc6b4548a41"
ALL_AT_LEAST = 0.98
WILD_AT_LEAST = 29
GENERIC = "generic"
CLASSES = [
    ("cuda_oom", r"the GPU ran out of memory"),
    ("nccl", r"NCCL|a collective timed out"),
    ("device_mismatch", r"on the same device"),
    ("cuda_runtime", r"CUDA error|GPU kernel"),
    ("oom_killer", r"was killed.*: it used more memory than requested"),
    ("ram_oom", r"could not allocate memory|bad_alloc|MemoryError"),
    ("segfault", r"[Ss]egmentation fault"),
    ("nan_loss", r"is not a number|not finite"),
    ("missing_module", r"is not installed|shared library was not found|ModuleNotFoundError"),
    ("file_not_found", r"FileNotFoundError|a checkpoint is missing"),
    ("permission", r"permission denied|PermissionError"),
    ("div_zero", r"ZeroDivisionError"),
    ("assertion", r"AssertionError"),
    ("runtime_error", r"RuntimeError|a checkpoint does not fit the model"),
    ("traceback", r"^(?:.* failed first: )?\w+(?:Error|Exception)\b"),
]
"""The benchmark's class → what of hpcrun's summary names it. The first row that matches counts."""


@dataclass(frozen=True)
class Log:
    """A log of the benchmark; the path is below its folder."""

    path: str
    source: str
    label: str


@dataclass(frozen=True)
class Sample:
    """A log, and the answers of hpcrun and of the benchmark's grep."""

    log: Log
    summary: str
    by_grep: str

    @property
    def by_hpcrun(self) -> str:
        return class_of(self.summary)


@dataclass(frozen=True)
class Benchmark:
    """A checkout of the benchmark, and its own functions."""

    folder: Path
    accuracy: Callable[[list[str], list[str]], float]
    macro_f1: Callable[[list[str], list[str]], float]
    grep: Callable[[dict[str, str]], str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, help=f"a checkout of {ADDRESS}; else it is fetched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpcrun-gpualert-") as name:
        folder = options.folder
        if folder is None:
            folder = Path(name)
            fetch(folder)
        return measure(load(folder))


def fetch(folder: Path) -> None:
    """Check the benchmark out, at the commit that was read."""
    subprocess.run(["git", "clone", "--quiet", ADDRESS, str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", COMMIT], check=True)


def load(folder: Path) -> Benchmark:
    """Return the benchmark with the functions that its experiment 1 uses."""
    sys.path.insert(0, str(folder))
    metrics = import_module("eval.metrics")
    grep = import_module("baselines.grep_baseline")
    return Benchmark(folder, metrics.accuracy, metrics.macro_f1, grep.classify)


def measure(benchmark: Benchmark) -> int:
    """Print the figures and each log whose class hpcrun did not name; return the exit status."""
    labelled = explain_all(benchmark, labelled_logs(benchmark.folder))
    all_wild = explain_all(benchmark, all_wild_logs(benchmark.folder))
    published = published_figures(benchmark.folder / "results")
    print("| logs | | hpcrun | its grep | gpualert, as published |\n|---|--:|--:|--:|--:|")
    for source in ("all", "injected", "synthetic", "wild"):
        samples = [sample for sample in labelled if source in ("all", sample.log.source)]
        print_row(benchmark, source, samples, published.get(source, "–"))
    print_row(benchmark, "wild, with the 6 that are in wild_labels.tsv alone", all_wild, "–")
    for sample in {sample.log.path: sample for sample in labelled + all_wild}.values():
        if sample.by_hpcrun != sample.log.label:
            print(f"\nnot {sample.log.label}: {sample.log.path}: {sample.summary}")
    share = right(labelled) / len(labelled)
    good = share >= ALL_AT_LEAST and right(all_wild) >= WILD_AT_LEAST
    demand = f"at least {ALL_AT_LEAST:.0%} of all and {WILD_AT_LEAST} of {len(all_wild)} wild"
    print(f"\n{'as' if good else 'NOT as'} demanded: {demand}")
    return 0 if good else 1


def labelled_logs(folder: Path) -> list[Log]:
    """Return the logs that the benchmark scores."""
    lines = (folder / "corpus/labels.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [Log(row["log_path"], row["source"], row["mode"]) for row in rows]


def all_wild_logs(folder: Path) -> list[Log]:
    """Return all wild logs: six of them have a class here, but not in labels.jsonl."""
    lines = (folder / "corpus/wild/wild_labels.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [Log(f"corpus/wild/{row[0]}.log", "wild", row[1]) for row in rows]


def explain_all(benchmark: Benchmark, logs: Sequence[Log]) -> list[Sample]:
    """Return logs with the answers."""
    rules = load_rules([])
    samples = []
    for log in logs:
        path = benchmark.folder / log.path
        grep = benchmark.grep({"log": path.read_text()})
        samples.append(Sample(log, explain_logs([str(path)], rules).summary, grep))
    return samples


def class_of(summary: str) -> str:
    """Return the benchmark's class that a summary of hpcrun names."""
    for name, pattern in CLASSES:
        if re.search(pattern, summary):
            return name
    return GENERIC


def right(samples: Sequence[Sample]) -> int:
    """Return how many logs got their class from hpcrun."""
    return sum(sample.by_hpcrun == sample.log.label for sample in samples)


def published_figures(results: Path) -> dict[str, str]:
    """Return source → accuracy and macro-F1 of gpualert."""
    figures = {}
    for name in ("exp1_summary.csv", "exp1_by_source.csv"):
        with (results / name).open(newline="") as file:
            for row in csv.DictReader(file):
                if row["classifier"] == "gpualert":
                    source = row.get("source", "all")
                    figures[source] = figure(float(row["accuracy"]), float(row["macro_f1"]))
    return figures


def print_row(benchmark: Benchmark, source: str, samples: Sequence[Sample], published: str) -> None:
    labels = [sample.log.label for sample in samples]
    cells = []
    for answers in (
        [sample.by_hpcrun for sample in samples],
        [sample.by_grep for sample in samples],
    ):
        accuracy = benchmark.accuracy(labels, answers)
        cells.append(figure(accuracy, benchmark.macro_f1(labels, answers)))
    print(f"| {source} | {len(samples)} | {' | '.join(cells)} | {published} |")


def figure(accuracy: float, macro_f1: float) -> str:
    return f"{accuracy:.1%}; {macro_f1:.3f}"


if __name__ == "__main__":
    sys.exit(main())
