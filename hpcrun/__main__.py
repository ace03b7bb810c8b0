"""``hpcrun`` and ``python -m hpcrun``: the latter is a name that HPCToolkit's own hpcrun cannot shadow."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run hpcrun; Ctrl-C while it is still being imported is no traceback either."""
    try:
        from hpcrun.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("hpcrun: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
