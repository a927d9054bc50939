"""The registry of sinks: one declaration per sink, from which the shells derive their own forms.

A module of this folder that ends with `register(SinkDeclaration(...))` is a sink. From the
declaration follow the Airflow target, the Dagster model, the values of `scan --to` on the command
line, and the tables of sinks in the documentation.

This module imports neither Arrow nor the client, because Airflow imports it when it parses a DAG.
"""

from __future__ import annotations

import enum
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from fluss_client import FlussConnection
    from fluss_orchestrate.core.sinks.base import Sink

REQUIRED: Any = object()
"""The default of a field that has none."""


class FieldKind(enum.Enum):
    """What a field holds, and so how each shell asks for it.

    `TEXT`, `FLAG` and `NAMES` (a text, a bool, a list of texts) are given in clear in every shell.

    `PROPERTIES` is a mapping of texts. Entries that are no secrets are given in clear. The others
    come from an Airflow connection, or from environment variables (Dagster, the command line).

    `DATABASE` is an SQLAlchemy URL or engine, and `SECRET` is any other secret text. Both come from
    an Airflow connection (the engine of its hook, its password) or an environment variable.

    `CLUSTER` is the connection to a Fluss cluster; None is the connection that the rows are read
    with.
    """

    TEXT = "text"
    FLAG = "flag"
    NAMES = "names"
    PROPERTIES = "properties"
    DATABASE = "database"
    SECRET = "secret"  # noqa: S105 (the name of a kind)
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class SinkField:
    """One field of a sink.

    Attributes:
        name: The field's name in every shell.
        doc: What it means, in one sentence or two.
        kind: What it holds.
        default: Its default; `REQUIRED` if it must be given.
        templated: Whether Airflow renders templates in it.
        connection: The word in front of `conn_id` in the name of the Airflow connection that holds
            the secret; empty for `conn_id` alone.
    """

    name: str
    doc: str
    kind: FieldKind = FieldKind.TEXT
    default: Any = REQUIRED
    templated: bool = False
    connection: str = ""

    @property
    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.default is REQUIRED

    @property
    def is_secret(self) -> bool:
        """Whether the whole value is a secret, so that no shell takes it in clear."""
        return self.kind in (FieldKind.DATABASE, FieldKind.SECRET)


SCHEMA_POLICY = SinkField(
    "schema_policy",
    "What happens with columns that the table lacks: `error` or `add_columns`.",
    default="error",
)


def form_field(*forms: str) -> SinkField:
    """Return the field `form` of a sink that can write rows in these forms."""
    return SinkField(
        "form",
        f"What the sink makes of the rows: {', '.join(f'`{name}`' for name in forms)}.",
        default="append",
    )


class LineageNode(NamedTuple):
    """A dataset as OpenLineage names it."""

    namespace: str
    name: str


Values = Mapping[str, Any]
"""The values of a sink's fields by name; defaults are filled in, and secrets are resolved."""


@dataclass(frozen=True, slots=True)
class SinkDeclaration:
    """Everything that the shells need to know about a sink.

    Attributes:
        name: The sink's name: the Dagster key, and the word before the colon in `scan --to`.
        sink: The class of the sink.
        summary: What it is, in one sentence.
        promise: How often a row arrives.
        how: How the promise is kept.
        place: How the first field looks, such as `namespace.table`.
        fields: The fields. The first one says where the rows are written.
        make: Makes the sink from the values of the fields and the connection that the rows are
            read with.
        dataset: Names the dataset for lineage, from the values and the alias of the cluster.
        short: The name on the command line and of the Airflow target, if it is not `name`.
    """

    name: str
    sink: type
    summary: str
    promise: str
    how: str
    place: str
    fields: tuple[SinkField, ...]
    make: Callable[[Values, FlussConnection], Sink]
    dataset: Callable[[Values, str], LineageNode]
    short: str = ""

    @property
    def short_name(self) -> str:
        """The name on the command line."""
        return self.short or self.name

    @property
    def camel_name(self) -> str:
        """The short name as the beginning of a class name."""
        return "".join(word.capitalize() for word in self.short_name.split("_"))

    @property
    def needs_only_a_place(self) -> bool:
        """Whether the first field is the only one that must be given."""
        return not any(field.is_required for field in self.fields[1:])

    def open(self, values: Values, connection: FlussConnection) -> Sink:
        """Open the sink.

        Args:
            values: The values of the fields; those that are left out get their defaults.
            connection: The connection that the rows are read with.

        Raises:
            ConfigError: A field is unknown, or a required field is missing.
        """
        return self.make(self.completed(values), connection)

    def node(self, values: Values, alias: str) -> LineageNode:
        """Return the dataset that the sink writes, as lineage names it.

        Args:
            values: The values of the fields; those that are left out get their defaults.
            alias: The alias of the cluster that is read, or of the one that a field names.
        """
        return self.dataset(self.completed(values), alias)

    def completed(self, values: Values) -> dict[str, Any]:
        """Return the values with the defaults of the fields that are left out.

        Raises:
            ConfigError: A field is unknown, or a required field is missing.
        """
        from fluss_client.errors import ConfigError

        known = {field.name for field in self.fields}
        unknown = sorted(values.keys() - known)
        if unknown:
            raise ConfigError(
                f"sink {self.name} has no field {', '.join(unknown)}: its fields are "
                f"{', '.join(field.name for field in self.fields)}"
            )
        missing = [f.name for f in self.fields if f.is_required and f.name not in values]
        if missing:
            raise ConfigError(f"sink {self.name} needs {', '.join(missing)}")
        return {f.name: values.get(f.name, f.default) for f in self.fields}


_declared: dict[str, SinkDeclaration] = {}


def register(declaration: SinkDeclaration) -> None:
    """Add a sink to the registry. A module of a sink calls it once, when it is imported.

    Raises:
        ValueError: Another class has registered the name.
    """
    known = _declared.get(declaration.name)
    if known is not None and known.sink is not declaration.sink:
        raise ValueError(f"{known.sink} is already registered as the sink {declaration.name}")
    _declared[declaration.name] = declaration


def unregister(name: str) -> None:
    """Remove a sink from the registry; for tests."""
    del _declared[name]


def declarations() -> dict[str, SinkDeclaration]:
    """Return the declarations of all sinks by name, in alphabetical order.

    The first call imports every module of this folder. pyiceberg and SQLAlchemy are not imported:
    a sink imports them when it is opened.
    """
    package = importlib.import_module("fluss_orchestrate.core.sinks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_declared.items()))


def declaration(name: str) -> SinkDeclaration:
    """Return the declaration of one sink."""
    return declarations()[name]


def environment_value(name: str) -> str:
    """Return the value of an environment variable that holds a secret.

    Raises:
        ConfigError: The variable is not set.
    """
    from fluss_client.errors import ConfigError

    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"the environment variable {name} is not set: set it where runs execute")
    return value


def file_node(path: str) -> LineageNode:
    """Return the dataset of files: on this machine, or in the store that their URI names."""
    parts = urlsplit(path)
    if not parts.scheme or parts.scheme == "file":
        return LineageNode("file", os.path.abspath(parts.path))
    # OpenLineage has one name for each store, and writes the container of Azure like a login.
    scheme = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}.get(
        parts.scheme, parts.scheme
    )
    host = parts.netloc if scheme == "abfss" else _host(parts.netloc)
    return LineageNode(f"{scheme}://{host}", parts.path.strip("/") or "/")


def address_node(url: str, name: str) -> LineageNode:
    """Return the dataset of a table behind an address, without the login that the address has."""
    parts = urlsplit(url)
    host = _host(parts.netloc)
    scheme = parts.scheme.partition("+")[0]
    return LineageNode(f"{scheme}://{host}{parts.path if not host else ''}", name)


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]
