"""Write the classes of the facade from those of `fluss_client.aio`, or check that they are current.

    python fluss_client/facade/generate.py [--check]

It is run by its path, not with `-m`: importing `fluss_client` would import the files that it
writes, and a stale one could stop it.

A signature and its docstring are written once, in `aio`. The facade's class has every public
method of the `aio` class under the same name and with the same parameters:

- `async def` returns a `Handle`, which can be awaited or waited for. The methods in `BLOCKING`
  wait for the result themselves, because the guides do not await them.
- Other methods and properties call the `aio` object directly.
- A result that is an object of `aio` is wrapped in the facade's class of the same name.
- What a base class in `base.py` defines is not generated.

The files are committed, so that installing the package needs no tool. Ruff formats them.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE_ROOT = FOLDER.parents[1]

MODULES = {
    "admin": ("FlussAdmin",),
    "table": (
        "FlussTable",
        "TableScan",
        "LogScanner",
        "BatchScanner",
        "TableAppend",
        "AppendWriter",
        "UpsertWriter",
        "TableUpsert",
        "Lookuper",
        "TableLookup",
        "PrefixLookuper",
        "TablePrefixLookup",
    ),
    "connection": ("FlussConnection",),
}
"""The generated modules and the classes of each."""
SUMMARIES = {
    "admin": "Administration, for code with or without an event loop.",
    "table": "Tables, scans, writers and look-ups, for code with or without an event loop.",
    "connection": "A connection, for code with or without an event loop.",
}
BASES = {
    "FlussConnection": ("ConnectionBase",),
    "LogScanner": ("LogScannerBase",),
    "AppendWriter": ("WriterBase[aio.AppendWriter]",),
    "UpsertWriter": ("WriterBase[aio.UpsertWriter]",),
    "TableUpsert": ("UpsertBuilderBase", "UpsertWriter"),
    "TableLookup": ("LookupBuilderBase", "Lookuper"),
}
"""The bases of a class; others have `Facade` only."""
BLOCKING = {
    "LogScanner": {"poll_arrow", "poll_record_batch", "to_arrow", "to_pandas", "close"},
    "BatchScanner": {"to_arrow", "to_pandas"},
}
"""Coroutines of `aio` that the facade waits for."""
AWAITED = {"FlussConnection": {"get_admin"}}
"""Plain methods of `aio` that the guides await."""
AIO_ONLY = {"FlussConnection": {"writer_backend"}, "LogScanner": {"poll_staged"}}
"""Methods that the facade does not have."""
FIRST_STATEMENTS = dict.fromkeys(
    ("FlussAdmin.list_offsets", "FlussAdmin.list_partition_offsets"),
    "offset_spec = resolve_offset_spec(offset_spec, offset_type, timestamp)",
)
"""Checks that the facade makes before the call begins, so that it raises at the call."""
HANDLE_OF_WRITES = "WriteResultHandle"

CLASSES = {name: module for module, names in MODULES.items() for name in names}
FacadeFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class AioModule:
    """A module of `aio`: its classes, and where its names come from."""

    name: str
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    """The import statement of each name."""
    typing_imports: dict[str, str] = field(default_factory=dict)
    """Those under `if TYPE_CHECKING`."""

    @classmethod
    def read(cls, name: str) -> AioModule:
        """Parse a module."""
        module = cls(name)
        for node in _parse(name).body:
            if isinstance(node, ast.ClassDef):
                module.classes[node.name] = node
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                for inner in node.body:
                    module.typing_imports.update(_imports_of(inner))
            elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                module.imports[node.name] = f"from {name} import {node.name}"
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                target = node.targets[0].id
                module.imports[target] = f"from {name} import {target}"
            else:
                module.imports.update(_imports_of(node))
        return module


class ModuleWriter:
    """Writes one module of the facade."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._imports: set[str] = {
            "from fluss_client import aio",
            "from fluss_client.facade.handle import Handle",
            "from fluss_client.runtime import runtime",
            *(f"from fluss_client.facade.base import {made}" for made in _base_members()),
            "from fluss_client.facade.base import wrapped",
        }
        self._typing_imports: set[str] = set()
        self._bodies: list[str] = []

    def text(self) -> str:
        """Return the module's source, formatted."""
        homes = _aio_homes()
        for name in MODULES[self._name]:
            module = AioModule.read(homes[name])
            self._bodies.append(self._class(module, module.classes[name]))
        body = "\n".join(self._bodies)
        used = [line for line in sorted(self._imports) if re.search(rf"\b{_bound(line)}\b", body)]
        typing = "".join(f"    {line}\n" for line in sorted(self._typing_imports))
        if typing:
            used.append("from typing import TYPE_CHECKING")
            typing = f"\nif TYPE_CHECKING:\n{typing}"
        parts = [
            f'"""{SUMMARIES[self._name]}\n\n'
            "Generated from `fluss_client.aio` by `fluss_client.facade.generate`; do not edit.\n"
            '"""\n\nfrom __future__ import annotations\n',
            *used,
            typing,
            body,
        ]
        return _formatted("\n".join(parts), FOLDER / f"{self._name}.py")

    def _class(self, module: AioModule, node: ast.ClassDef) -> str:
        bases = BASES.get(node.name, (f"Facade[aio.{node.name}]",))
        hidden = set(AIO_ONLY.get(node.name, ()))
        for base in bases:
            hidden |= _base_members().get(base.partition("[")[0], set())
        body = [_docstring(node)]
        for at, member in enumerate(node.body):
            if isinstance(member, FacadeFunction):
                public = not member.name.startswith("_") or member.name == "__repr__"
                if public and member.name not in hidden:
                    body.append(self._function(module, node.name, member))
            elif alias := _alias(member):
                following = node.body[at + 1] if at + 1 < len(node.body) else None
                body.append(f"{alias}\n{_text(following)}")
        # A builder that is a writer too makes its `_core` on first use.
        ignored = "  # type: ignore[override]" if "UpsertBuilderBase" in bases else ""
        return f"class {node.name}({', '.join(bases)}):{ignored}\n" + textwrap.indent(
            "\n".join(body), "    "
        )

    def _function(self, module: AioModule, owner: str, node: FacadeFunction) -> str:
        first = FIRST_STATEMENTS.get(f"{owner}.{node.name}", "")
        for part in [node.args, *node.decorator_list, *ast.parse(first).body]:
            self._import_names(module, part)
        if node.returns is not None:
            self._import_names(module, node.returns)
        decorators = "".join(f"@{ast.unparse(one)}\n" for one in node.decorator_list)
        returns, statement = self._call(owner, node)
        body = [_docstring(node), first, statement]
        return (
            f"{decorators}def {node.name}({ast.unparse(node.args)}) -> {returns}:\n"
            + textwrap.indent("\n".join(filter(None, body)), "    ")
        )

    def _call(self, owner: str, node: FacadeFunction) -> tuple[str, str]:
        """Return the annotation of the result, and the statement that gives it."""
        decorators = {ast.unparse(one) for one in node.decorator_list}
        assert node.returns is not None, f"{owner}.{node.name} has no return annotation"
        returns = ast.unparse(node.returns)
        core = "self._builder" if _is_builder(owner) else "self._core"
        if "staticmethod" in decorators:
            core = f"aio.{owner}"
        call = f"{core}.{node.name}({_arguments(node.args)})"
        if "property" in decorators:
            call = f"{core}.{node.name}"
        elif node.name == "__repr__":
            call = f"repr({core})"
        what = f'"{owner}.{node.name}"'
        is_wrapped = returns in CLASSES
        if isinstance(node, ast.AsyncFunctionDef):
            made = f"wrapped({call}, {returns})" if is_wrapped else call
            if node.name in BLOCKING.get(owner, ()):
                return returns, f"return runtime().call({made})"
            return f"Handle[{returns}]", f"return Handle.start({made}, {what})"
        if is_wrapped:
            call = f"{returns}({call})"
        if node.name in AWAITED.get(owner, ()):
            return f"Handle[{returns}]", f"return Handle.of({call})"
        if returns == HANDLE_OF_WRITES:
            # The writer makes handles of the facade's class.
            return returns, f"return {call}  # type: ignore[return-value]"
        return returns, call if returns == "None" else f"return {call}"

    def _import_names(self, module: AioModule, node: ast.AST) -> None:
        for name in {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}:
            if name in CLASSES:
                if CLASSES[name] != self._name:
                    self._imports.add(f"from fluss_client.facade.{CLASSES[name]} import {name}")
            elif name == HANDLE_OF_WRITES:
                self._imports.add(f"from fluss_client.facade.base import {name}")
            elif name in module.typing_imports:
                self._typing_imports.add(module.typing_imports[name])
            elif name in module.imports:
                self._imports.add(module.imports[name])


def _parse(module: str) -> ast.Module:
    path = SOURCE_ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(), str(path))


def _aio_homes() -> dict[str, str]:
    """Return the module of each class that `fluss_client.aio` exports."""
    return {
        alias.name: str(node.module)
        for node in _parse("fluss_client.aio").body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _base_members() -> dict[str, set[str]]:
    """Return the names that each class of `base.py` defines."""
    return {
        node.name: {one.name for one in node.body if isinstance(one, FacadeFunction)}
        for node in _parse("fluss_client.facade.base").body
        if isinstance(node, ast.ClassDef)
    }


def _is_builder(name: str) -> bool:
    return any(base.endswith("BuilderBase") for base in BASES.get(name, ()))


def _imports_of(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        source = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            yield alias.asname or alias.name, f"{source}import {ast.unparse(alias)}"


def _bound(statement: str) -> str:
    """Return the name that an import statement binds."""
    return re.split(r" import | as ", statement)[-1].removeprefix("import ")


def _alias(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
        return ast.unparse(node)
    return None


def _text(node: ast.stmt | None) -> str:
    """Return the docstring that stands after an assignment."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return f'"""{node.value.value!s}"""'
    return ""


def _docstring(node: ast.ClassDef | FacadeFunction) -> str:
    text = ast.get_docstring(node)
    if text is None:
        if node.name.startswith("__"):
            return ""
        raise SystemExit(f"{node.name} is public and has no docstring")
    ending = "\n" if "\n" in text else ""
    return f'"""{text}{ending}"""'


def _arguments(args: ast.arguments) -> str:
    """Return the arguments that pass all parameters on."""
    given = [one.arg for one in args.posonlyargs + args.args if one.arg not in ("self", "cls")]
    given += [f"{one.arg}={one.arg}" for one in args.kwonlyargs]
    if args.vararg:
        given.append(f"*{args.vararg.arg}")
    if args.kwarg:
        given.append(f"**{args.kwarg.arg}")
    return ", ".join(given)


def _formatted(source: str, path: Path) -> str:
    """Sort the imports, and format."""
    ruff = Path(sys.executable).with_name("ruff")
    name = ["--stdin-filename", str(path), "-"]
    for command in (["check", "-q", "--fix", "--select", "I", *name], ["format", "-q", *name]):
        done = subprocess.run(
            [str(ruff), *command], input=source, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"{path.name} could not be formatted by ruff: {done.stderr.strip()}")
        source = done.stdout
    return source


def generate() -> dict[str, str]:
    """Return the text of each generated module by its file name."""
    return {f"{name}.py": ModuleWriter(name).text() for name in MODULES}


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or with --check report the stale ones; returns the exit code."""
    parser = argparse.ArgumentParser(prog="generate.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    check = bool(parser.parse_args(arguments).check)
    stale = []
    for name, text in generate().items():
        target = FOLDER / name
        if target.exists() and target.read_text() == text:
            continue
        stale.append(name)
        if not check:
            target.write_text(text)
    if check and stale:
        print(
            f"fluss_client.aio no longer matches {' and '.join(stale)} of the facade: "
            "run 'make generate'.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
