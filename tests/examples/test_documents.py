"""The documents' programs run, and their tables say what is so."""

from __future__ import annotations

import fluss_client
import fluss_client.aio
from fluss_client import errors
from fluss_client.config import OPTIONS
from fluss_client.options import UNBOUNDED_MS
from tests.configuration_page import page
from tests.examples.documents import ROOT, code_in, programs, table
from tests.examples.members import check_member, members

CLIENT = "docs/client.md"
CONFIGURATION = "docs/reference/configuration.md"


def test_the_clients_programs_run(address: str, database: str) -> None:
    found = programs(CLIENT)
    assert len(found) >= 3
    scope: dict[str, object] = {"ADDRESS": address, "DATABASE": database, "__name__": "docs"}
    for program in found:
        exec(compile(program, CLIENT, "exec"), scope)


def test_the_differences_of_the_surfaces_are_as_described() -> None:
    rows = table(CLIENT, "### How they differ")
    assert len(rows) >= 15
    for what, facade, older, core in rows:
        assert facade, what
        for module, cell in (
            (fluss_client, facade),
            (fluss_client, older),
            (fluss_client.aio, core or facade),
        ):
            for text in code_in(cell):
                awaited = "await " if text.startswith("await ") else ""
                owner, _, rest = text.removeprefix("await ").partition(".")
                (member,) = members(f"{awaited}{rest}")
                check_member(module, owner, member)
        assert facade not in (older, core), f"{what}: an equal cell is left empty"


def test_every_configuration_key_is_described_with_its_default() -> None:
    described = {}
    for key, attribute, default, meaning in table(CONFIGURATION, "## Keys"):
        ((found_key,), (name,)) = code_in(key), code_in(attribute)
        described[found_key] = (name, default)
        assert meaning, f"{found_key} is not explained"
    actual = {}
    for key, option in OPTIONS.items():
        default = "unbounded" if option.default == UNBOUNDED_MS else str(option.default) or "none"
        actual[key] = (option.name, default)
    assert described == actual
    assert page() == (ROOT / CONFIGURATION).read_text(), "run python -m tests.configuration_page"


def test_the_errors_are_there() -> None:
    rows = table(CLIENT, "## Errors and what to do")
    assert len(rows) >= 15
    for error, when, remedy in rows:
        (name,) = code_in(error)
        assert issubclass(getattr(errors, name), fluss_client.FlussError)
        assert when, name
        assert remedy, name


def test_links_between_documents_lead_somewhere() -> None:
    import re

    for document in ("README.md", CLIENT, CONFIGURATION):
        text = (ROOT / document).read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            place = (ROOT / document).parent / target
            assert place.exists(), f"{document} points to {target}"
