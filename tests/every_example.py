"""A rank that runs every example once, as small as can be: ``every_example.py EXAMPLES``.

Its environment is in the folder of checkpoints, in ``environment-RANK.json``.

Each runs in a fork: torch, whose import takes longer than all of them, is imported once.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch._dynamo  # noqa: F401 - each optimizer would import it

SMALL = ["--epochs", "1"]
NETWORK = [*SMALL, "--d-model", "8", "--layers", "1"]
ARGUMENTS = {
    "digits_ddp": SMALL,
    "digits_resume": SMALL,
    "text_classification": [*NETWORK, "--samples", "64", "--seq-len", "8", "--batch-size", "32"],
    "sasrec": [*NETWORK, "--seq-len", "8", "--heads", "1"],
    "kgat": [*NETWORK, "--batch-size", "4096"],
    "tree_models": ["--trees", "2"],
}


def main() -> None:
    """Run the examples of a folder; the exit status is 1, at once, if one fails."""
    examples = Path(sys.argv[1])
    folder = Path(os.environ["HPCRUN_CHECKPOINT_DIR"])
    environment = json.dumps(dict(os.environ))
    (folder / f"environment-{os.environ['RANK']}.json").write_text(environment)
    for number, name in enumerate(ARGUMENTS):
        child = os.fork()
        if child == 0:
            _run(examples, name, number)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"failed: {name}")


def _run(examples: Path, name: str, number: int) -> None:
    """Run an example among the ranks of its own, with their folder of checkpoints."""
    env = os.environ
    if number:  # the store of torchrun's agent has what the first example wrote
        env.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        # the next port may be that of the next job, on the same node
        env["MASTER_PORT"] = str(int(env["HPCRUN_PORT"]) + 100 * number)
    folder = Path(env["HPCRUN_CHECKPOINT_DIR"], name)
    folder.mkdir(exist_ok=True)
    env["HPCRUN_CHECKPOINT_DIR"] = str(folder)
    sys.path.insert(0, str(examples))
    sys.argv[:] = [name, *ARGUMENTS[name]]
    try:
        runpy.run_path(str(examples / f"{name}.py"), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    print("ended:", name, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
