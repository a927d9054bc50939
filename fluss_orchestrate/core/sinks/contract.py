"""Contracts: rules that the rows of a sink must keep.

A rule is a condition on rows in the text form of `row_filter`, or says that a column is there, of
which type, and without nulls. A row keeps a condition if the condition is true for it: null is
neither true nor false, so `amount >= 0` refuses rows without an amount.

`fail` reads the whole plan first and raises before anything is written. `quarantine` writes the
rows that violate a rule into another sink, each once, and the rest into the sink. Both sinks write
under the same plan, so that a plan that is written again leaves each row once in one of them. For
the same reason a pending plan keeps the rules with which it was begun.

Of the changes of a key table, only new images (`+I`, `+U`) are checked. Old images and deletes
always reach the sink. So a mirror keeps the last good row of a key whose update is quarantined, and
loses the row when the key is deleted.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_client import ChangeType
from fluss_client.engine import from_arrow, parse_type
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.checkpoints.events import CALLER
from fluss_orchestrate.core.plan import ScanPlan
from fluss_orchestrate.core.row_filter import RowFilter
from fluss_orchestrate.core.sinks.base import (
    MirrorRows,
    MirrorSink,
    ReadPlan,
    Sink,
    SinkForm,
    SinkResult,
    identity_of,
    needs_order,
)
from fluss_orchestrate.core.sinks.errors import SinkError, SinkFormError, SinkSchemaError

VIOLATIONS_SHOWN_MAX = 5
"""Rows that an error names."""
PLAN_ID, REASON = "_plan_id", "_reason"
"""Columns of a quarantine beside those of the rows, their offset, bucket and partition."""
_PLACE = ("_offset", "_bucket", "_partition")
_CHANGE_TYPE = "_change_type"

Flags = npt.NDArray[np.bool_]


class OnViolation(enum.StrEnum):
    """What happens with rows that violate a rule."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """A column must be there.

    Attributes:
        column: The name of the column.
        type: Its type in Fluss's words, such as `DECIMAL(10, 2)`; any type if not given.
        not_null: Whether a row may not have null in it.
    """

    column: str
    type: str | None = None
    not_null: bool = False

    def __str__(self) -> str:
        return f"{self.column}{f' {self.type}' if self.type else ''}" + (
            " not null" if self.not_null else ""
        )


Rule = str | ColumnRule | Mapping[str, Any]
"""A condition, a `ColumnRule`, or the fields of one."""


class ContractViolatedError(SinkError):
    """Rows of a plan violate a rule; nothing was written.

    Attributes:
        rule: The rule.
        rows: How many rows of the plan violate it.
        places: The first of them: partition, bucket and offset.
    """

    def __init__(
        self, sink: str, rule: str, rows: int, places: Sequence[tuple[str | None, int, int]]
    ) -> None:
        shown = "; ".join(
            (f"partition {partition} " if partition is not None else "")
            + f"bucket {bucket} offset {offset}"
            for partition, bucket, offset in places
        )
        super().__init__(
            sink,
            f"{rows} rows violate '{rule}', the first at {shown}. Nothing was written: mend the "
            "rows at their source, change the rule, or let them go to a quarantine with "
            "on_violation='quarantine'",
        )
        self.rule = rule
        self.rows = rows
        self.places = tuple(places)


class ContractSink:
    """A sink whose rows keep rules.

    Args:
        sink: The sink.
        rules: The rules.
        on_violation: `fail` or `quarantine`.
        quarantine: The sink of the rows that violate a rule; it adds rows. It gets the columns of
            the row, `_plan_id`, `_offset`, `_bucket`, `_partition`, `_reason`, and `_change_type`
            for a key table.

    Raises:
        ConfigError: A rule cannot be understood, there is none, `quarantine` is missing, or it is
            the sink itself.
        SinkFormError: The quarantine is a mirror or a history, or rows cannot be kept out of a
            sink, because it reads them by itself.
    """

    def __init__(
        self,
        sink: Sink,
        rules: Sequence[Rule],
        on_violation: OnViolation | str = OnViolation.FAIL,
        quarantine: Sink | None = None,
    ) -> None:
        if isinstance(rules, str) or not rules:
            raise ConfigError("rules takes a list with at least one rule")
        self._sink = sink
        self._rules = [_parsed(rule) for rule in rules]
        self._on_violation = OnViolation(on_violation)
        if (self._on_violation is OnViolation.QUARANTINE) != (quarantine is not None):
            raise ConfigError(
                "on_violation='quarantine' and a quarantine sink belong together: give both"
            )
        self._quarantine = quarantine
        shared = _places(sink) & _places(quarantine)
        if shared:
            # It holds the plan when the violations are in it, so it would not take the other rows.
            raise ConfigError(
                f"the quarantine is the sink itself ({', '.join(shared)}): give it another place"
            )
        for one in (sink, quarantine):
            if quarantine is not None and one is not None and getattr(one, "reads_itself", False):
                raise SinkFormError(
                    identity_of(one),
                    "it reads the rows of a plan by itself (on Spark), so no rule could keep rows "
                    "out of it: use IcebergSink, or on_violation='fail', which checks the plan "
                    "before anything is written",
                )
        form: SinkForm | None = getattr(quarantine, "form", None)
        if quarantine is not None and form is not None and form.follows_state:
            raise SinkFormError(
                identity_of(quarantine), f"a quarantine adds rows, and this sink is a {form}"
            )

    @property
    def identity(self) -> str:
        """The identity of the inner sink: rules may change without a new checkpoint."""
        return identity_of(self._sink)

    @property
    def form(self) -> SinkForm | None:
        """The form of the inner sink."""
        return getattr(self._sink, "form", None)

    @property
    def contract(self) -> dict[str, str | None]:
        """What a pending plan is bound to: a digest of the rules, and the quarantine."""
        inner = getattr(self._sink, "contract", None) or {"rules": "", "quarantine": None}
        rules = "\n".join([inner["rules"], *(_text(rule) for rule in self._rules)])
        own = None if self._quarantine is None else identity_of(self._quarantine)
        places = [place for place in (inner["quarantine"], own) if place is not None]
        return {
            "rules": hashlib.sha256(rules.encode()).hexdigest()[:16],
            "quarantine": ", ".join(places) or None,
        }

    @property
    def exactly_once(self) -> bool:
        """Whether the sink and the quarantine leave each row once."""
        return self._sink.exactly_once and (
            self._quarantine is None or self._quarantine.exactly_once
        )

    def needs_order(self, plan: ScanPlan) -> bool:
        """Return whether the inner sink must get rows in the order of the log.

        Args:
            plan: A plan of the table that is read.
        """
        return needs_order(self._sink, plan)

    def read_mirror(
        self, name: str, schema: pa.Schema
    ) -> AbstractContextManager[MirrorRows | None]:
        """Read the mirror that the sink keeps. Rows in quarantine are not in it.

        Args:
            name: The checkpoint.
            schema: The columns of the table that the mirror has, with the types of the table.

        Returns:
            The rows in the order of `schema`; None if the sink holds no plan of the checkpoint.
        """
        return cast(MirrorSink, self._sink).read_mirror(name, schema)

    def write(self, plan: ScanPlan, read: ReadPlan) -> SinkResult:
        """Check the rows of the plan and write them.

        Args:
            plan: The plan.
            read: Returns the rows of the plan, or of a part of it.

        Returns:
            What the sink holds of the plan, and how many rows went into quarantine.

        Raises:
            ContractViolatedError: Rows violate a rule, and the contract is to fail.
            SinkSchemaError: A column of a rule is missing, or has another type.
        """
        checked = _Checked(identity_of(self._sink), self._rules, plan, read)
        if self._quarantine is None:
            checked.require_kept()
            return self._sink.write(plan, read)
        held = self._quarantine.write(plan, checked.violations)
        done = self._sink.write(plan, checked.kept)
        details = {
            **done.details,
            "quarantined": held.rows,
            "quarantine": identity_of(self._quarantine),
        }
        return replace(done, details=details)


def _places(sink: Sink | None) -> set[str]:
    """Return where a sink writes: its identity, and those of its quarantines."""
    if isinstance(sink, ContractSink):
        return _places(sink._sink) | _places(sink._quarantine)
    return set() if sink is None else {identity_of(sink)} - {CALLER}


def _parsed(rule: Rule) -> RowFilter | ColumnRule:
    if isinstance(rule, str):
        return RowFilter.parse(rule)
    if isinstance(rule, Mapping):
        given = dict(rule)
        try:
            rule = ColumnRule(**given)
        except TypeError as error:
            raise ConfigError(
                f"{given} is no rule: give column, and type or not_null, or a condition as text"
            ) from error
    if rule.type is not None:
        parse_type(rule.type)
    return rule


class _Checked:
    """The rows of one plan, divided by the rules into accepted and rejected ones."""

    def __init__(
        self, sink: str, rules: Sequence[RowFilter | ColumnRule], plan: ScanPlan, read: ReadPlan
    ) -> None:
        self._sink = sink
        self._rules = rules
        self._plan = plan
        self._read = read

    def require_kept(self) -> None:
        """Read all rows and raise if one violates a rule."""
        counts = [0] * len(self._rules)
        places: list[list[tuple[str | None, int, int]]] = [[] for _ in self._rules]
        for batch, violated in self._batches(self._plan):
            for at, flags in enumerate(violated):
                rows = np.flatnonzero(flags)
                counts[at] += rows.size
                wanted = rows[: VIOLATIONS_SHOWN_MAX - len(places[at])]
                if wanted.size:
                    found = batch.select(list(_PLACE)).take(pa.array(wanted)).to_pylist()
                    places[at] += [(r["_partition"], r["_bucket"], r["_offset"]) for r in found]
        for rule, rows_violating, where in zip(self._rules, counts, places, strict=True):
            if rows_violating:
                raise ContractViolatedError(self._sink, _text(rule), rows_violating, where)

    def kept(self, part: ScanPlan) -> pa.RecordBatchReader:
        """Return the rows of a part of the plan that keep all rules, as the plan has them."""
        reader = self._opened(part)
        names = [*part.columns, *part.metadata_columns]
        schema = pa.schema(
            [reader.schema.field(name) for name in names], metadata=reader.schema.metadata
        )

        def batches() -> Iterator[pa.RecordBatch]:
            for batch, violated in self._judged(reader):
                wrong = np.logical_or.reduce(violated)
                rows = batch.select(names)
                if wrong.any():
                    rows = rows.filter(pa.array(~wrong))
                if rows.num_rows:
                    yield rows

        return pa.RecordBatchReader.from_batches(schema, batches())

    def violations(self, part: ScanPlan) -> pa.RecordBatchReader:
        """Return the rows of a part of the plan that violate a rule, with where and why."""
        reader = self._opened(part)
        # A quarantine has no key: a row may come into it again and again.
        kept = pa.schema([f.with_nullable(True) for f in reader.schema])
        more = [pa.field(PLAN_ID, pa.string()), pa.field(REASON, pa.string())]
        schema = pa.schema([*kept, *more])
        reasons = pa.array([_text(rule) for rule in self._rules])

        def batches() -> Iterator[pa.RecordBatch]:
            for batch, violated in self._judged(reader):
                flags = np.stack(violated)
                rows = np.flatnonzero(flags.any(axis=0))
                if rows.size:
                    found = batch.take(pa.array(rows))
                    first = reasons.take(pa.array(flags[:, rows].argmax(axis=0)))
                    ids = pa.repeat(pa.scalar(self._plan.plan_id), rows.size)
                    yield pa.RecordBatch.from_arrays([*found.columns, ids, first], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _opened(self, part: ScanPlan) -> pa.RecordBatchReader:
        """Open a part of the plan with the columns that identify a row: offset and place."""
        wanted = (_CHANGE_TYPE, *_PLACE) if part.kind != "log" else _PLACE
        more = [name for name in wanted if name not in part.metadata_columns]
        columns = (*part.metadata_columns, *more)
        reader = self._read(replace(part, metadata_columns=columns))
        self._check(reader.schema)
        return reader

    def _check(self, schema: pa.Schema) -> None:
        for rule in self._rules:
            if isinstance(rule, RowFilter):
                rule.check(schema)
                continue
            at = schema.get_field_index(rule.column)
            if at < 0:
                raise SinkSchemaError(
                    self._sink, f"the contract needs column '{rule.column}'", [rule.column]
                )
            found = schema.field(at).type
            # Whether a column may be null is another rule.
            if rule.type is not None and parse_type(rule.type).to_arrow("UTC") != found:
                raise SinkSchemaError(
                    self._sink,
                    f"the contract needs '{rule.column}' of type {rule.type}, and it is "
                    f"{from_arrow(found)}",
                    [rule.column],
                )

    def _batches(self, part: ScanPlan) -> Iterator[tuple[pa.RecordBatch, list[Flags]]]:
        return self._judged(self._opened(part))

    def _judged(self, reader: pa.RecordBatchReader) -> Iterator[tuple[pa.RecordBatch, list[Flags]]]:
        """Return batches, and for each rule which rows violate it."""
        has_changes = _CHANGE_TYPE in reader.schema.names
        for batch in reader:
            new: Flags | None = None
            if has_changes:
                codes = ChangeType.codes_of(batch.column(_CHANGE_TYPE), _CHANGE_TYPE, 0)
                new = (codes != ChangeType.UpdateBefore) & (codes != ChangeType.Delete)
            violated = [_violated(rule, batch) for rule in self._rules]
            yield batch, [flags if new is None else flags & new for flags in violated]


def _violated(rule: RowFilter | ColumnRule, batch: pa.RecordBatch) -> Flags:
    if isinstance(rule, RowFilter):
        violated = pc.invert(pc.fill_null(rule.condition.of(batch), False))
    elif rule.not_null:
        violated = batch.column(rule.column).is_null()
    else:
        return np.zeros(batch.num_rows, np.bool_)
    return cast(Flags, violated.to_numpy(zero_copy_only=False))


def _text(rule: RowFilter | ColumnRule) -> str:
    return rule.text if isinstance(rule, RowFilter) else str(rule)
