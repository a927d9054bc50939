"""Checkpoints: the position of each scan, as an append-only history of events in Fluss or SQL.

`events.py` says what an event is, `transitions.py` which event may follow which, `store.py` how the
next one is claimed: by compare-and-set of its sequence, and by nothing else. `records.py` and
`layers.py` say what a store keeps of an event: the whole position, or what changed of it since an
earlier event, and how the position is built of at most log2 of the number of events.
`fluss_orchestrate.core.checkpoints.report` lists checkpoints, and shows their history and lag.
"""

from fluss_orchestrate.core.checkpoints.events import CheckpointState, Event, EventKind
from fluss_orchestrate.core.checkpoints.fluss_store import FlussCheckpointStore
from fluss_orchestrate.core.checkpoints.position import TablePosition
from fluss_orchestrate.core.checkpoints.scheduler_state import (
    SchedulerState,
    get_state,
    set_state,
)
from fluss_orchestrate.core.checkpoints.sql_store import SqlCheckpointStore
from fluss_orchestrate.core.checkpoints.store import CheckpointStore, EventLog
from fluss_orchestrate.core.checkpoints.transfer import (
    compact,
    export_checkpoints,
    import_checkpoints,
)

__all__ = [
    "CheckpointState",
    "CheckpointStore",
    "Event",
    "EventKind",
    "EventLog",
    "FlussCheckpointStore",
    "SchedulerState",
    "SqlCheckpointStore",
    "TablePosition",
    "compact",
    "export_checkpoints",
    "get_state",
    "import_checkpoints",
    "set_state",
]
