"""A sink that is declared appears in Airflow, Dagster, the command line and the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fluss_orchestrate.core.sinks.base import ReadPlan, SinkResult
from fluss_orchestrate.core.sinks.registry import (
    FieldKind,
    LineageNode,
    SinkDeclaration,
    SinkField,
    declarations,
    register,
    unregister,
)
from tests import sink_declarations

pytestmark = pytest.mark.usefixtures("airflow_home")


@dataclass
class BottleSink:
    """A sink that exists in this test only."""

    label: str
    token: str
    corked: bool
    form = None
    exactly_once = False

    @property
    def identity(self) -> str:
        return f"bottle:{self.label}"

    def write(self, plan: Any, read: ReadPlan) -> SinkResult:
        return SinkResult(read(plan).read_all().num_rows)


@pytest.fixture
def bottle() -> Iterator[SinkDeclaration]:
    """A declared sink with a secret."""
    declared = SinkDeclaration(
        name="bottle",
        sink=BottleSink,
        summary="A bottle in the sea.",
        promise="at most once",
        how="nobody answers",
        place="LABEL",
        fields=(
            SinkField("label", "What stands on it.", templated=True),
            SinkField("token", "Who may open it.", FieldKind.SECRET, connection="bottle"),
            SinkField("corked", "Whether it is closed.", FieldKind.FLAG, default=True),
        ),
        make=lambda values, _: BottleSink(**values),
        dataset=lambda values, _: LineageNode("bottle", values["label"]),
    )
    register(declared)
    yield declared
    unregister("bottle")


def test_a_new_sink_is_one_declaration(
    bottle: SinkDeclaration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Airflow target, the Dagster model, the command line and the documentation have it."""
    from fluss_orchestrate.airflow import targets
    from fluss_orchestrate.cli.commands.scan import SinkOptions, sink_forms
    from fluss_orchestrate.dagster.components.increments import increment_model

    wanted = BottleSink("blue", "hush", corked=False)
    connection: Any = None

    names = dict(vars(targets))
    exec(compile(sink_declarations.targets_source([bottle]), "targets", "exec"), names)
    target = names["BottleTarget"]("blue", "sea", corked=False)
    monkeypatch.setenv("AIRFLOW_CONN_SEA", json.dumps({"conn_type": "x", "password": "hush"}))
    assert target.open(connection) == wanted
    assert target.node("alias") == targets.Node("bottle", "blue")
    assert target.template_fields == ("label",)
    assert "hush" not in repr(target)

    present = sink_declarations.PUBLIC_NAMES.read_text()
    every = list(declarations().values())
    exported = sink_declarations.public_names_source(present, every)
    assert exported.count("BottleTarget") == 3
    assert exported.replace("BottleTarget", "").count("Target") == present.count("Target")
    every.remove(bottle)
    assert sink_declarations.public_names_source(exported, every) == present

    monkeypatch.setenv("BOTTLE_TOKEN", "hush")
    given = {"label": "blue", "token_env": "BOTTLE_TOKEN", "corked": False}
    model = increment_model(declarations().values())
    increment = model(table="a.b", key="c", bottle=given)
    assert increment.bottle.open(connection) == wanted
    assert "hush" not in repr(increment)
    shown = json.dumps(model.model().model_json_schema())
    assert "What stands on it." in shown
    assert "Whether it is closed." in shown

    session: Any = type("Session", (), {"connection": None})()
    options = SinkOptions("bottle:blue", (), ["corked=false"], ["token=BOTTLE_TOKEN"])
    assert "bottle:LABEL" in sink_forms()
    assert options.open(session, []) == wanted

    page = sink_declarations.reference([bottle])
    assert "`--to bottle:LABEL`" in page
    assert "`--sink-env token=VARIABLE`" in page
    assert "| `BottleSink` | at most once | nobody answers |" in sink_declarations.promises(
        [bottle]
    )


def test_a_name_has_one_sink(bottle: SinkDeclaration) -> None:
    register(bottle)
    with pytest.raises(ValueError, match="already registered"):
        register(replace(bottle, sink=object))
