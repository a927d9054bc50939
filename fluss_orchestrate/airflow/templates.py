"""Arguments that are templates: one that renders to nothing is an error, never a default.

An empty path would be the worker's own directory, an empty load id or time would be as if none
was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ClassVar

from fluss_orchestrate.airflow.errors import FlussTaskFailedError

if TYPE_CHECKING:
    from airflow.sdk import Context

_NOTHING = ("", "None", "none")
"""What a template makes of a value that is not there."""


class CheckedTemplates:
    """An operator or sensor whose rendered arguments are checked."""

    template_fields: Sequence[str]
    task_id: str
    free_fields: ClassVar[Sequence[str]] = ()
    """Template fields that may be empty."""
    data_fields: ClassVar[Sequence[str]] = ()
    """Template fields in which a text is a path, and anything else is the user's data."""

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: Any = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render as Airflow does; a template that renders to nothing fails the task.

        Numbers as keys, such as those of offsets by bucket, become text: Airflow 3.0 fails a task
        whose rendered arguments have other keys.
        """
        name = self._field_with(content) if isinstance(content, str) else None
        render: Any = super().render_template  # type: ignore[misc]
        rendered = render(content, context, jinja_env, seen_oids)
        nothing = rendered is None or (
            isinstance(rendered, str) and rendered != content and rendered.strip() in _NOTHING
        )
        if name is not None and nothing:
            raise FlussTaskFailedError(
                f"task {self.task_id}: the template of '{name}', {content!r}, gave "
                f"{rendered!r}: give the value that it names (a retry does not help: not retried)"
            )
        if type(rendered) is dict:
            return {str(k) if isinstance(k, int) else k: v for k, v in rendered.items()}
        return rendered

    def check_not_empty(self) -> None:
        """Raise if an argument is an empty text; call it before any work."""
        for name in self._checked_fields():
            value = getattr(self, name, None)
            nested = [(name, value)] if isinstance(value, str) else _nested_fields(name, value)
            for where, text in nested:
                if isinstance(text, str) and not text.strip():
                    raise FlussTaskFailedError(
                        f"task {self.task_id}: '{where}' is empty: give it a value, or leave it "
                        "out if it may be left out (a retry does not help: not retried)"
                    )

    def _checked_fields(self) -> list[str]:
        return [name for name in self.template_fields if name not in self.free_fields]

    def _field_with(self, content: str) -> str | None:
        """Return the field of a text that is about to be rendered, found by identity."""
        for name in self._checked_fields():
            value = getattr(self, name, None)
            if value is content:
                return name
            if name in self.data_fields:
                continue
            for where, text in _leaves(name, value):
                if text is content:
                    return where
        return None


def _nested_fields(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the template fields of a value that has some, such as a target."""
    fields = getattr(value, "template_fields", ())
    return [(f"{name}.{field}", getattr(value, field, None)) for field in fields]


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield all texts in a value, each with its path."""
    if isinstance(value, Mapping):
        parts = [(f"{name}.{key}", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple, Set)):
        parts = [(f"{name}[{index}]", part) for index, part in enumerate(value)]
    else:
        parts = _nested_fields(name, value)
    for where, part in parts:
        if isinstance(part, str):
            yield where, part
        else:
            yield from _leaves(where, part)
