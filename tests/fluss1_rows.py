"""What is shown for servers of Fluss 1.0, and by which kind of test; part of the support matrix.

No 1.0 server can be had from a registry, so nothing here was run against one. `bytes checked`: the
official client jar of 1.0.0 encodes and decodes the messages in the same way. `scripted`: a test
double that speaks the wire protocol plays the answers of a 1.0 server. `embedded`: run on the
embedded engine, which implements it.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
BYTES = "tests/interop/test_message_bytes.py::test_client_jar_encodes_the_same_bytes"
COUNTS = "tests/fluss1/test_bucket_counts.py::"
SCAN = "tests/fluss1/test_kv_scan.py::"
FILTERS = "tests/fluss1/test_filters.py::"

ROWS: tuple[tuple[str, str, str], ...] = (
    ("Messages with new fields, new calls", "bytes checked", BYTES),
    (
        "Bucket counts per partition: writes, look-ups, scans, offsets, statistics",
        "scripted",
        f"{COUNTS}test_every_request_says_the_count_of_its_partition",
    ),
    (
        "Changing the bucket count (`alter_table`)",
        "scripted",
        f"{COUNTS}test_a_bucket_count_is_changed_with_the_new_version_of_the_call",
    ),
    (
        "Changing the bucket count (`alter_table`)",
        "embedded",
        "tests/contract/test_rescaling.py::test_each_partition_keeps_its_count",
    ),
    (
        "Writers racing with changes of the bucket count",
        "embedded",
        "tests/embedded/test_rescale_races.py::test_no_row_is_lost_doubled_or_misplaced",
    ),
    (
        "Error 74: rows and keys are placed anew",
        "scripted",
        f"{COUNTS}test_rows_that_were_placed_by_a_wrong_count_are_placed_anew",
    ),
    (
        "Pressure and error 72 slow a writer down",
        "scripted",
        f"{COUNTS}test_pressure_slows_a_writer_down_and_error_72_does_not_fail_it",
    ),
    (
        "Key state by the server's scan (SCAN_KV), expiry, too many scans",
        "scripted",
        f"{SCAN}test_a_scan_that_the_server_ends_goes_on_behind_the_last_key",
    ),
    (
        "`alter_database`, `get_cluster_health`, `list_remote_log_manifests`, all KV snapshots",
        "scripted",
        f"{SCAN}test_the_new_calls_of_the_admin",
    ),
    (
        "Filters of log scans on the server",
        "scripted",
        f"{FILTERS}test_batches_that_the_server_leaves_out_are_skipped_and_the_rest_is_tested",
    ),
    (
        "Servers of 0.9.1 get the same bytes as before",
        "scripted",
        f"{COUNTS}test_servers_before_1_0_get_the_bytes_of_before",
    ),
)


def faults() -> list[str]:
    """Return the rows whose test does not exist."""
    found = []
    for name, _, test in ROWS:
        file, _, function = test.partition("::")
        path = ROOT / file
        if not path.is_file() or f"def {function}(" not in path.read_text():
            found.append(f"'{name}' names {test}, which does not exist")
    return found


def render() -> str:
    """Return the section of the document."""
    parts = [
        "\n## Fluss 1.0\n\n"
        "No 1.0 server can be had from a registry: nothing below was run against one. *Bytes "
        "checked*: the\nofficial client jar of 1.0.0 encodes and decodes the messages in the same "
        "way. *Scripted*: a test double\nthat speaks the wire protocol plays the answers of a 1.0 "
        "server. *Embedded*: run on the embedded engine.\n\n"
        "| | how it is shown | |\n|---|---|---|\n"
    ]
    parts += [
        f"| {name} | {label} | `{test.removeprefix('tests/')}` |\n" for name, label, test in ROWS
    ]
    return "".join(parts)
