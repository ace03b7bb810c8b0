"""``python -m hpcrun``: the same program under a name that HPCToolkit's own hpcrun cannot shadow."""

from hpcrun.cli.main import main

main()
