"""What messages hear of the core: destinations to check, runs to send messages about, rows for their details."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcrun.actions.hooks import Hooks
from hpcrun.actions.status.run_status import RunStatus


class NotifyHooks(Hooks):
    """The hooks of messages; each imports what it needs, since apprise takes longer to import than all the rest."""

    def check_destination(self, to: str, env: Mapping[str, str]) -> None:
        """Refuse a destination that apprise does not know."""
        from hpcrun.features.notify.send import servers_of

        servers_of(to, env)

    def on_status(self, items: Sequence[RunStatus], runs: Path, now_s: float) -> None:
        """Send the messages that jobs could not send themselves."""
        from hpcrun.features.notify.late import send_late

        send_late(items, runs, now_s)

    def run_rows(self, item: RunStatus) -> Sequence[tuple[str, str]]:
        """Return what became of a run's messages."""
        from hpcrun.features.notify.display import delivery_rows
        from hpcrun.features.notify.messages import deliveries

        return delivery_rows(deliveries(item.folder, time.time()))

    def run_json(self, item: RunStatus) -> list[dict[str, Any]]:
        """Return what became of a run's messages."""
        from hpcrun.features.notify.display import deliveries_json
        from hpcrun.features.notify.messages import deliveries

        return deliveries_json(deliveries(item.folder, time.time()))
