"""Which test puts which part under which fault: a table of docs/reliability.md.

Every cell names its tests, or says why the fault cannot reach the part.
"""

from __future__ import annotations

from collections.abc import Iterator

FAULTS = (
    "kill",
    "SIGSTOP",
    "leader move",
    "coordinator death",
    "full disk",
    "clock jump",
    "network",
)
PARTS = (
    "mirrors",
    "key-state reads from KV snapshots",
    "tiering of key tables",
    "object storage",
    "console",
)
SOAK = "tests/faults/soak/test_soak.py::test_everything_at_once_under_one_fault_after_the_other"
_PARTS = "tests/faults/test_parts.py"
_STORE = "tests/storage/test_store_faults.py"
_FULL = f"{_PARTS}::test_a_full_disk_is_a_typed_error_and_the_next_round_goes_on"
_CLOCK = f"{_PARTS}::test_a_clock_that_jumps_changes_no_row"
_SNAPSHOTS = "tests/contract/test_kv_snapshots.py"

Cell = tuple[str, ...] | str
"""The tests, or why there can be none."""

CELLS: dict[str, dict[str, Cell]] = {
    "mirrors": {
        "kill": (
            "tests/orchestrate/mirror_sql/test_kills.py::test_sql_equal_after_every_kill",
            "tests/orchestrate/mirror_sql/test_kills.py::test_fluss_equal_after_every_kill",
            "tests/orchestrate/mirror/test_iceberg_mirror_crashes.py"
            "::test_equal_through_kills_and_rebuilds",
        ),
        "SIGSTOP": (SOAK,),
        "leader move": (SOAK,),
        "coordinator death": (SOAK,),
        "full disk": (_FULL,),
        "clock jump": (_CLOCK,),
        "network": (
            SOAK,
            "tests/storage/test_commits_sent_twice.py::test_a_mirror_equals_its_table",
        ),
    },
    "key-state reads from KV snapshots": {
        "kill": (
            SOAK,
            f"{_SNAPSHOTS}::test_the_lease_of_a_killed_process_expires",
            f"{_SNAPSHOTS}::test_the_folder_of_a_killed_process_goes_with_the_next_read",
        ),
        "SIGSTOP": (SOAK, f"{_SNAPSHOTS}::test_a_process_that_outslept_its_lease_reads_no_further"),
        "leader move": (SOAK,),
        "coordinator death": (
            SOAK,
            "tests/faults/test_coordinator_starts.py"
            "::test_every_question_is_answered_through_the_death_of_the_coordinator",
        ),
        "full disk": (
            f"{_SNAPSHOTS}::test_a_copy_on_a_full_disk",
            f"{_SNAPSHOTS}::test_a_full_disk_is_not_called_damage",
            "tests/contract/test_state.py::test_changes_on_a_full_disk",
        ),
        "clock jump": (_CLOCK,),
        "network": (
            SOAK,
            "tests/storage/test_remote_storage.py"
            "::test_the_state_of_keys_is_read_from_snapshots_on_s3",
        ),
    },
    "tiering of key tables": {
        "kill": ("tests/orchestrate/lake/test_key_tiering.py::test_killed_at_any_stage",),
        "SIGSTOP": (SOAK,),
        "leader move": (SOAK,),
        "coordinator death": (
            "tests/orchestrate/lake/test_coordinator_deaths.py::test_the_coordinator_dies",
        ),
        "full disk": (_FULL,),
        "clock jump": (_CLOCK,),
        "network": (
            SOAK,
            "tests/storage/test_commits_sent_twice.py::test_a_lake_is_tiered_and_maintained",
        ),
    },
    "object storage": {
        "kill": (
            "tests/storage/test_parquet_sink.py::test_every_row_once_through_kills",
            "tests/storage/test_rest_catalog.py::test_every_row_once_through_kills_of_the_sink",
            "tests/storage/test_rest_catalog.py::test_every_row_once_through_kills_of_tiering",
        ),
        "SIGSTOP": (f"{_STORE}::test_a_store_that_is_stopped_for_a_while",),
        "leader move": "a store has no leaders; what reads and writes there is moved in the soak",
        "coordinator death": "a store asks no coordinator; what reads and writes there does, and "
        "goes through it in the soak",
        "full disk": (f"{_STORE}::test_no_room_for_what_is_on_its_way_to_the_store",),
        "clock jump": ("tests/storage/test_parquet_sink.py::test_a_wrong_clock_is_told",),
        "network": (
            "tests/storage/test_parquet_sink.py::test_increments_through_failing_requests",
            "tests/storage/test_remote_storage.py::test_a_log_is_read_through_failing_requests",
            "tests/storage/test_rest_catalog.py"
            "::test_increments_into_iceberg_through_failing_requests",
        ),
    },
    "console": {
        "kill": (SOAK,),
        "SIGSTOP": (SOAK,),
        "leader move": (SOAK,),
        "coordinator death": (SOAK,),
        "full disk": (f"{_PARTS}::test_a_console_shows_its_pages_on_a_full_disk",),
        "clock jump": (f"{_PARTS}::test_a_console_shows_its_pages_while_the_clock_jumps",),
        "network": (SOAK,),
    },
}


def tests() -> Iterator[str]:
    """Every test that the table names."""
    for part in PARTS:
        for fault in FAULTS:
            cell = CELLS[part][fault]
            if not isinstance(cell, str):
                yield from cell


def section() -> str:
    """The table as a section of the page; its numbers are those of the list below it."""
    numbers: dict[str, int] = {}

    def numbered(cell: Cell) -> str:
        lines = [f"no test: {cell}"] if isinstance(cell, str) else [f"`{test}`" for test in cell]
        return ", ".join(str(numbers.setdefault(line, len(numbers) + 1)) for line in lines)

    head = f"| part | {' | '.join(FAULTS)} |\n|---|{'---|' * len(FAULTS)}\n"
    rows = "".join(
        f"| {part} | {' | '.join(numbered(CELLS[part][fault]) for fault in FAULTS)} |\n"
        for part in PARTS
    )
    notes = "".join(f"{number}. {line}\n" for line, number in numbers.items())
    told = "Which test puts which part under which fault:"
    return f"\n## Parts and faults\n\n{told}\n\n{head}{rows}\n{notes}"
