"""Receipts in Airflow: the task's return value, and the extra of its outlets' events.

XComs and asset events stay small. A receipt with many ranges is published with a summary of them;
the whole receipt stays where the work recorded it, and `receipt_from` gets it from there.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fluss_orchestrate.airflow.version_compat import CAPABILITIES

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_client import FlussConnection
    from fluss_orchestrate.core.receipts import Receipt

EXTRA_KEY = "fluss"
ENTRIES_MAX = 50
"""Ranges, offsets or receipts that a published value lists one by one."""
DETAILS_MAX = 10
"""Entries of a list in the details, such as files, that a published value lists."""
SUMMARY_KEY = "summarised"


def publish(
    context: Context, result: Mapping[str, Any], *, partitions: bool = False
) -> dict[str, Any]:
    """Put a task's result into the extra of every outlet's event.

    Args:
        context: Airflow's context.
        result: The result, as plain values.
        partitions: Whether each outlet gets one event for each partition that the result names.

    Returns:
        The result for XCom, with long lists summarised.
    """
    from airflow.sdk import Asset, AssetAlias

    plain = small(result)
    names = partition_names(result) if partitions else []
    for outlet in context["task"].outlets:
        if isinstance(outlet, (Asset, AssetAlias)):
            events = context["outlet_events"][outlet]
            events.extra[EXTRA_KEY] = plain
            if names and isinstance(outlet, Asset):
                events.add_partitions(names)
    return plain


def partition_names(result: Mapping[str, Any]) -> list[str]:
    """Return the names of the partitions that a result is about, those of adopted plans too.

    Args:
        result: A receipt or the outcome of a sensor, as plain values.
    """
    ranges = [*result.get("ranges", ())]
    for receipt in result.get("adopted", ()):
        ranges += receipt.get("ranges", ())
    found = result.get("partitions")
    return sorted({r[1] for r in ranges if r[1]} | {*(found if isinstance(found, list) else ())})


def check_asset_partitions(task_id: str) -> None:
    """Check that this Airflow takes events of partitions from tasks.

    Raises:
        ConfigError: If it does not.
    """
    from fluss_client.errors import ConfigError

    if not CAPABILITIES.asset_partitions:
        raise ConfigError(
            f"{task_id}: asset_partitions=True needs Airflow 3.3: leave it out, or upgrade Airflow"
        )


def small(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result in which long lists of ranges and offsets are replaced by their counts.

    Args:
        result: A receipt or an outcome, as plain values.
    """
    plain = dict(result)
    counts: dict[str, int] = {}
    ranges = plain.get("ranges")
    if isinstance(ranges, list) and len(ranges) > ENTRIES_MAX:
        counts["ranges"] = len(ranges)
        counts["partitions"] = len({entry[0] for entry in ranges})
        counts["offsets"] = sum(entry[4] - entry[3] for entry in ranges)
        plain["ranges"] = []
    for key in ("offsets", "position"):
        value = plain.get(key)
        if isinstance(value, list) and _length(value) > ENTRIES_MAX:
            counts[f"{key}_entries"] = _length(value)
            del plain[key]
    if isinstance(plain.get("details"), Mapping):
        plain["details"] = {key: _short(value) for key, value in plain["details"].items()}
    adopted = plain.get("adopted")
    if isinstance(adopted, list):
        if len(adopted) > ENTRIES_MAX:
            counts["adopted"] = len(adopted)
        plain["adopted"] = [small(receipt) for receipt in adopted[:ENTRIES_MAX]]
    if counts:
        plain[SUMMARY_KEY] = counts
    return plain


def _short(value: Any) -> Any:
    """Return a detail of a receipt with long lists, such as those of files, cut off."""
    if isinstance(value, Mapping):
        return {key: _short(part) for key, part in value.items()}
    if isinstance(value, list) and len(value) > DETAILS_MAX:
        return [*value[:DETAILS_MAX], f"and {len(value) - DETAILS_MAX} more"]
    return value


def _length(entries: list[Any]) -> int:
    return sum(len(e[-1]) if e and isinstance(e[-1], list) else 1 for e in entries)


def receipt_from(value: Mapping[str, Any] | str, client: FlussConnection | None = None) -> Receipt:
    """Return the receipt in a task's return value, in an event's extra, or in the text of either.

    Args:
        value: The return value, the extra, or a text that a template made of one of them.
        client: The cluster that the receipt is of. It is needed for a receipt whose ranges were
            summarised: the whole receipt is read from the checkpoint store or the load ledger.

    Raises:
        CorruptDataError: If the value is no receipt.
        ConfigError: If the ranges were summarised, and no client was given or the whole receipt
            is not recorded.
    """
    from fluss_client.errors import CorruptDataError
    from fluss_orchestrate.core.receipts import Receipt

    if isinstance(value, str):
        value = parsed_text(value)
    if isinstance(value, Mapping) and EXTRA_KEY in value:
        value = value[EXTRA_KEY]
    if not isinstance(value, Mapping):
        raise CorruptDataError(f"a receipt is a mapping, not {type(value).__name__}")
    receipt = Receipt.from_json(value)
    if SUMMARY_KEY not in value:
        return receipt
    return _whole(receipt, client)


def _whole(receipt: Receipt, client: FlussConnection | None) -> Receipt:
    from fluss_client.errors import ConfigError

    found = None if client is None else _recorded(receipt, client)
    if found is None:
        why = "is not recorded any more" if client else "needs receipt_from(value, client)"
        raise ConfigError(
            f"the receipt of {receipt.run_key} has too many ranges for XCom, and the whole one "
            f"{why}: give offsets or a time instead"
        )
    return found


def _recorded(receipt: Receipt, client: FlussConnection) -> Receipt | None:
    from fluss_orchestrate.core.checkpoints import FlussCheckpointStore
    from fluss_orchestrate.core.loading import load_receipt
    from fluss_orchestrate.core.loading.ledger import finished_receipt

    table = str(receipt.table.path)
    if receipt.kind == "increment":
        name = str(receipt.details["name"])
        store = FlussCheckpointStore(client)
        event = store.log.event(name, int(receipt.details["sequence"]))
        plan = None if event is None else event.state.pending
        return None if plan is None else store.receipt_of(plan, store.head(name))
    if receipt.kind in ("append", "upsert"):
        return load_receipt(client, table, receipt.run_key) or finished_receipt(
            client, table, receipt.run_key
        )
    return finished_receipt(client, table, receipt.run_key)


def parsed_text(text: str) -> Any:
    """Return the value whose JSON, or whose text in Python, a template has made.

    Args:
        text: The text.

    Raises:
        CorruptDataError: If the text is neither.
    """
    from fluss_client.errors import CorruptDataError

    # JSON, or what a template makes of a dictionary unless the DAG renders native objects.
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError):
            continue
    raise CorruptDataError(f"this text is no receipt and no offsets: {text[:100]}")
