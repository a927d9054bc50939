"""What is shown for servers of Fluss 1.0, and by which kind of test; part of the support matrix.

No 1.0 server can be had from a registry, so nothing here was run against one (`MEANINGS`).
"""

from __future__ import annotations

from pathlib import Path

from tests.support_rows import ROWS as OPERATIONS

ROOT = Path(__file__).parents[1]
MEANINGS = {
    "run": "ran against a real server of that version",
    "bytes": "the official client jar of 1.0.0 writes and reads the same bytes",
    "scripted": "ran against a test double that speaks the wire protocol and plays the answers of "
    "a 1.0 server; the official client of 1.0.0 makes the same calls to it, and the requests of "
    "both are compared",
    "embedded": "ran on the embedded engine, which implements it",
    "same messages": "the messages of the call have the same fields in the official jars of 0.9.1 "
    "and 1.0.0; nothing else was checked",
    "\u2014": "not offered",
}
"""What the words of the matrix mean."""
NOTHING = "\u2014"
BY_SECTION = {"Formats": "bytes", "Types": "bytes"}
"""The 1.0 column of whole sections: rows are exchanged with the client of 1.0.0."""
BY_OPERATION = {
    "Connection.getTable": "scripted",
    "Admin.alterDatabase": "scripted",
    "Admin.getTableInfo": "scripted",
    "Admin.createPartition": "scripted",
    "Admin.listPartitionInfos": "scripted",
    "Admin.listPartitionInfos (spec)": "scripted",
    "Admin.listOffsets (partition)": "scripted",
    "Admin.getTableStats": "scripted",
    "Admin.getClusterHealth": "scripted",
    "Listings of remote files": "scripted",
    "Append of Arrow batches": "scripted",
    "Append to a partitioned table": "scripted",
    "Upsert": "scripted",
    "Upsert of Arrow batches": "scripted",
    "Upsert to a partitioned table": "scripted",
    "Key placement as the Java client's": "bytes",
    "Key types": "bytes",
    "Lookup by primary key": "scripted",
    "Lookup by primary key (composite)": "scripted",
    "Lookup by primary key (partitioned)": "scripted",
    "Lookup of many keys at once": "scripted",
    "Lookup by prefix": "scripted",
    "Scan of a log": "scripted",
    "Scan of a changelog": "scripted",
    "Scan of a partitioned table": "scripted",
    "Scan with a limit": "scripted",
    "Scan to the end": "scripted",
    "Scan.filter": "scripted",
}
"""The 1.0 column of single rows. Others have the same messages, or are not offered."""
INTEROP = "tests/interop/"
COUNTS = "tests/fluss1/test_bucket_counts.py::"
SCAN = "tests/fluss1/test_kv_scan.py::"
FILTERS = "tests/fluss1/test_filters.py::"
LATE = "tests/fluss1/test_system_partitions.py::"
KILLS = "test_every_row_once_through_kills_and_rescales"

ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "Every call, version, error code and message field of the release",
        "bytes",
        f"{INTEROP}test_jar_surface.py::test_every_field_of_our_messages_is_theirs",
    ),
    (
        "The bytes of every new field",
        "bytes",
        f"{INTEROP}test_jar_surface.py::test_the_bytes_of_every_new_field_are_compared",
    ),
    (
        "The official client's requests to the scripted server",
        "scripted",
        f"{INTEROP}test_calls_of_1_0.py::test_both_clients_make_the_same_calls",
    ),
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
        "Increments killed through rescales: Parquet, Iceberg, SQL, Fluss",
        "embedded",
        f"tests/orchestrate/incremental/test_rescaling.py::{KILLS}",
    ),
    (
        "Loads killed through rescales",
        "embedded",
        f"tests/orchestrate/sinks/test_loading_rescaled.py::{KILLS}",
    ),
    (
        "Mirrors in Iceberg killed through rescales",
        "embedded",
        "tests/orchestrate/mirror/test_iceberg_mirror_crashes.py::"
        "test_equal_through_kills_and_rescales",
    ),
    (
        "Mirrors in SQL and Fluss killed through rescales",
        "embedded",
        "tests/orchestrate/mirror_sql/test_kills.py::test_fluss_equal_after_every_kill",
    ),
    (
        "Error 74: rows and keys are placed anew",
        "scripted",
        f"{COUNTS}test_rows_that_were_placed_by_a_wrong_count_are_placed_anew",
    ),
    (
        "Error 74: reads are made again",
        "scripted",
        f"{COUNTS}test_reads_by_a_wrong_count_are_made_again",
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
        "Filters of log scans: what the jar makes of each condition",
        "bytes",
        f"{INTEROP}test_predicates_in_java.py::test_every_condition_means_the_same",
    ),
    (
        "Row filters of Spark and of the command line",
        "scripted",
        f"{FILTERS}test_row_filters_of_spark_are_sent",
    ),
    (
        "Late rows of expired partitions",
        "scripted",
        f"{LATE}test_a_plan_with_late_rows_is_read_by_another_process",
    ),
    (
        "Late rows in lags, counts, sensors, data versions and checks",
        "scripted",
        "tests/fluss1/test_late_rows_seen.py::"
        "test_lags_count_late_rows_unless_the_checkpoint_leaves_them_out",
    ),
    (
        "Servers of 0.9.1 get the same bytes as before",
        "scripted",
        f"{COUNTS}test_servers_before_1_0_get_the_bytes_of_before",
    ),
)


def label_of(section: str, name: str, offered: bool) -> str:
    """Return the word of the 1.0 column for a row of the matrix."""
    usual = BY_SECTION.get(section, "same messages") if offered else NOTHING
    return BY_OPERATION.get(name, usual)


def faults() -> list[str]:
    """Return what is wrong with the rows: tests, words and operations that do not exist."""
    found = [f"'{name}' is no row of the matrix" for name in BY_OPERATION.keys() - OPERATIONS]
    for name, label, test in ROWS:
        if label not in MEANINGS:
            found.append(f"'{name}' is shown by '{label}', which means nothing")
        file, _, function = test.partition("::")
        path = ROOT / file
        if not path.is_file() or f"def {function}(" not in path.read_text():
            found.append(f"'{name}' names {test}, which does not exist")
    return found


def render() -> str:
    """Return the section of the document."""
    parts = [
        "\n## Fluss 1.0\n\n"
        "No 1.0 server can be had from a registry: nothing was run against one.\n\n"
        "| what is shown | how | by |\n|---|---|---|\n"
    ]
    parts += [
        f"| {name} | {label} | `{test.removeprefix('tests/')}` |\n" for name, label, test in ROWS
    ]
    return "".join(parts)


def legend() -> str:
    """Return what the words of the two columns mean."""
    lines = [f"- *{word}*: {meaning}.\n" for word, meaning in MEANINGS.items()]
    return "".join(lines)
