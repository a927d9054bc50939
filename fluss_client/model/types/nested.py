"""ARRAY, MAP and ROW: types with other types inside.

They cannot be key or partition columns, and predicates only ask whether they are null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from fluss_client.errors import SchemaError
from fluss_client.model.types.base import (
    Check,
    DataType,
    Field,
    Json,
    Root,
    json_integer,
    json_list,
    json_optional_text,
    json_text,
    registered_types,
)
from fluss_client.model.types.layout import Kind, Layout


def type_of_arrow(arrow: pa.DataType, nullable: bool, name: str) -> DataType:
    """Return the data type for an Arrow type.

    Args:
        arrow: The Arrow type.
        nullable: Whether the data type is nullable.
        name: The column to name in an error.

    Raises:
        SchemaError: Fluss has no such type.
    """
    for cls in registered_types():
        found = cls.of_arrow(arrow, nullable, name)
        if found is not None:
            return found
    where = f"column '{name}': " if name else ""
    raise SchemaError(f"{where}Fluss has no type for Arrow's {arrow}")


class _NestedType(DataType):
    is_nested = True
    may_partition = False

    def to_stored(self, value: Any) -> Any:
        raise TypeError(f"{self.text} is no plain type")


class ArrayType(_NestedType, root=Root.ARRAY):
    """ARRAY: a list of elements of one type."""

    names = ("ARRAY", "LIST")
    layout = Layout(Kind.ARRAY)

    @classmethod
    def examples(cls) -> list[DataType]:
        return [cls.make(element=DataType(Root.INTEGER))]

    @property
    def children(self) -> tuple[DataType, ...]:
        return (_present(self.element),)

    def with_field_ids(self, next_id: Callable[[], int]) -> DataType:
        return replace(self, element=_present(self.element).with_field_ids(next_id))

    @property
    def text(self) -> str:
        return f"array<{self.element}>"

    def children_to_json(self) -> Json:
        return {"element_type": _present(self.element).to_json()}

    @classmethod
    def children_from_json(cls, value: Json) -> dict[str, Any]:
        return {"element": DataType.from_json(value["element_type"])}

    def to_arrow(self, zone: str | None) -> pa.DataType:
        # The name that Arrow itself and the official client give to the elements of a list.
        return pa.list_(_arrow_field("item", _present(self.element), zone))

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        if not (pa.types.is_list(arrow) or pa.types.is_large_list(arrow)):
            return None
        element = type_of_arrow(arrow.value_type, arrow.value_field.nullable, name)
        return cls.make(nullable, element=element)

    def check(self, name: str) -> Check:
        element = _present(self.element).checker(f"{name}[]")

        def check(value: Any) -> list[Any]:
            no_list = isinstance(value, str | bytes | bytearray | Mapping)
            if no_list or not hasattr(value, "__iter__"):
                self.refuse(name, value, f". Expected sequence for Array column '{name}'")
            return [element(item) for item in value]

        return check


class MapType(_NestedType, root=Root.MAP):
    """MAP: pairs of a key, which is never null, and a value."""

    names = ("MAP",)
    layout = Layout(Kind.MAP)

    @classmethod
    def examples(cls) -> list[DataType]:
        return [cls.make(key=DataType(Root.STRING, False), element=DataType(Root.INTEGER))]

    @property
    def children(self) -> tuple[DataType, ...]:
        return (_present(self.key), _present(self.element))

    def with_field_ids(self, next_id: Callable[[], int]) -> DataType:
        key, element = (child.with_field_ids(next_id) for child in self.children)
        return replace(self, key=key, element=element)

    @property
    def text(self) -> str:
        return f"map<{self.key},{self.element}>"

    def children_to_json(self) -> Json:
        key, value = self.children
        return {"key_type": key.to_json(), "value_type": value.to_json()}

    @classmethod
    def children_from_json(cls, value: Json) -> dict[str, Any]:
        return {
            "key": DataType.from_json(value["key_type"]),
            "element": DataType.from_json(value["value_type"]),
        }

    def to_arrow(self, zone: str | None) -> pa.DataType:
        key, value = self.children
        return pa.map_(
            _arrow_field("key", key.with_nullable(False), zone), _arrow_field("value", value, zone)
        )

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        if not pa.types.is_map(arrow):
            return None
        key = type_of_arrow(arrow.key_type, False, name)
        value = type_of_arrow(arrow.item_type, arrow.item_field.nullable, name)
        return cls.make(nullable, key=key, element=value)

    def check(self, name: str) -> Check:
        key_type, value_type = self.children
        key = key_type.with_nullable(False).checker(f"{name}{{key}}")
        item = value_type.checker(f"{name}{{value}}")
        hint = "; give a dict or a list of pairs"

        def check(value: Any) -> list[tuple[Any, Any]]:
            pairs = value.items() if isinstance(value, Mapping) else value
            if isinstance(pairs, str | bytes) or not hasattr(pairs, "__iter__"):
                self.refuse(name, value, hint)
            checked = []
            for pair in pairs:
                if not isinstance(pair, tuple | list) or len(pair) != 2:
                    self.refuse(name, value, hint)
                checked.append((key(pair[0]), item(pair[1])))
            return checked

        return check


class RowType(_NestedType, root=Root.ROW):
    """ROW: named fields, each with a type of its own."""

    names = ("ROW", "STRUCT")
    layout = Layout(Kind.ROW)

    @classmethod
    def examples(cls) -> list[DataType]:
        return [cls.make(fields=(Field("a", DataType(Root.INTEGER)),))]

    @property
    def children(self) -> tuple[DataType, ...]:
        return tuple(field.type for field in self.fields)

    def with_field_ids(self, next_id: Callable[[], int]) -> DataType:
        fields = []
        for field in self.fields:
            # The field's own id comes before those inside it.
            own = next_id()
            fields.append(replace(field, id=own, type=field.type.with_field_ids(next_id)))
        return replace(self, fields=tuple(fields))

    @property
    def text(self) -> str:
        return f"row<{', '.join(f'{field.name}: {field.type}' for field in self.fields)}>"

    def children_to_json(self) -> Json:
        return {"fields": [_field_to_json(field) for field in self.fields]}

    @classmethod
    def children_from_json(cls, value: Json) -> dict[str, Any]:
        return {"fields": tuple(_field_from_json(field) for field in json_list(value["fields"]))}

    def to_arrow(self, zone: str | None) -> pa.DataType:
        return pa.struct([_arrow_field(field.name, field.type, zone) for field in self.fields])

    @classmethod
    def of_arrow(cls, arrow: pa.DataType, nullable: bool, name: str) -> DataType | None:
        if not pa.types.is_struct(arrow):
            return None
        fields = (Field(f.name, type_of_arrow(f.type, f.nullable, f.name)) for f in arrow)
        return cls.make(nullable, fields=tuple(fields))

    def check(self, name: str) -> Check:
        fields = {f.name: f.type.checker(f"{name}.{f.name}", "row field") for f in self.fields}

        def check(value: Any) -> dict[str, Any]:
            if isinstance(value, Mapping):
                unknown = value.keys() - fields.keys()
                if unknown:
                    self.refuse(name, value, f"; it has no field {sorted(map(str, unknown))[0]}")
                return {field: test(value.get(field)) for field, test in fields.items()}
            if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
                if len(value) != len(fields):
                    self.refuse(name, value, f"; it takes {len(fields)} values")
                return {f: test(v) for (f, test), v in zip(fields.items(), value, strict=True)}
            self.refuse(name, value, "; give a dict, list or tuple")

        return check


def _present(child: DataType | None) -> DataType:
    return cast(DataType, child)


def _arrow_field(name: str, data_type: DataType, zone: str | None) -> pa.Field:
    return pa.field(name, data_type.to_arrow(zone), nullable=data_type.nullable)


def _field_to_json(field: Field) -> Json:
    out: Json = {"name": field.name, "field_type": field.type.to_json()}
    if field.description is not None:
        out["description"] = field.description
    out["field_id"] = field.id
    return out


def _field_from_json(value: Json) -> Field:
    return Field(
        json_text(value["name"]),
        DataType.from_json(value["field_type"]),
        json_optional_text(value, "description"),
        json_integer(value.get("field_id", -1)),
    )
