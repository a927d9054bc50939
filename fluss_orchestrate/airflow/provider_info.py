"""The description of the provider for Airflow. Every component loads it: it imports nothing."""

from __future__ import annotations

from typing import Any

HERE = "fluss_orchestrate.airflow"
INTEGRATION = "Apache Fluss"
GUIDES = (
    *("airflow", "how-to/hourly-increments", "how-to/backfills", "how-to/wait-for-the-lake"),
    "how-to/console",
)


def get_provider_info() -> dict[str, Any]:
    """Return the description of the provider."""
    return {
        "package-name": "fluss-orchestrate",
        "name": INTEGRATION,
        "description": "Tables, exactly-once increments, lake-snapshot waiting and bulk loads of "
        "Apache Fluss.",
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": "https://fluss.apache.org/",
                "logo": "/docs/images/logo.svg",
                "how-to-guide": [f"/docs/{name}.md" for name in GUIDES],
                "tags": ["apache"],
            }
        ],
        "hooks": [_modules("hooks")],
        "operators": [_modules("operators")],
        "sensors": [_modules("sensors")],
        "triggers": [_modules("triggers")],
        "connection-types": [_connection_type()],
        "asset-uris": [
            {
                "schemes": ["fluss"],
                "handler": f"{HERE}.assets.normalise_uri",
                "factory": f"{HERE}.assets.create_asset",
                "to_openlineage_converter": f"{HERE}.assets.to_openlineage",
            }
        ],
        "extra-links": [
            f"{HERE}.links.{name}"
            for name in ("FlussTableLink", "LakeTableLink", "FlussConsoleLink")
        ],
        "notifications": [f"{HERE}.notifiers.FlussLagNotifier"],
        "task-decorators": [
            {"name": "fluss_scan", "class-name": f"{HERE}.decorators.fluss_scan_task"}
        ],
        "queues": [f"{HERE}.queues.FlussQueueProvider"],
        "config": {"fluss": _config()},
    }


def _modules(name: str) -> dict[str, Any]:
    return {"integration-name": INTEGRATION, "python-modules": [f"{HERE}.{name}"]}


def _connection_type() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {
        "connection-type": "fluss",
        "hook-class-name": f"{HERE}.hooks.FlussHook",
        "hook-name": INTEGRATION,
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port"],
            "relabeling": {"host": "Bootstrap servers", "login": "SASL user"},
            "placeholders": {"host": "host:9123,host:9124 or embedded:/a/directory"},
        },
        "conn-fields": {
            "cluster_alias": {
                "label": "Cluster alias",
                "description": "The cluster's name in checkpoints and asset URIs. Never change it: "
                "addresses may change, the alias says that it is the same cluster.",
                "schema": {**text, "default": "", "pattern": "^([A-Za-z0-9][A-Za-z0-9._-]*)?$"},
            },
            "security_protocol": {
                "label": "Security protocol",
                "description": "SASL is used by itself when a user is given.",
                "schema": {**text, "default": "", "enum": ["", "PLAINTEXT", "SASL"]},
            },
            "table_url": {
                "label": "Address of tables",
                "description": "An http address with {cluster}, {database} and {table}, which "
                "tasks and sensors link to.",
                "schema": {**text, "default": ""},
            },
            "lake_url": {
                "label": "Address of lake tables",
                "description": "The same for the lakes of tables.",
                "schema": {**text, "default": ""},
            },
            "client_options": {
                "label": "Client options",
                "description": "Further keys of the client's configuration, as a JSON object.",
                "schema": {"type": ["object", "string", "null"], "default": ""},
            },
        },
    }


def _config() -> dict[str, Any]:
    return {
        "description": "Settings of the Apache Fluss provider.",
        "options": {
            "cluster_alias": {
                "description": "The alias in the URIs of `fluss_table_asset` when none is given.",
                "version_added": None,
                "type": "string",
                "example": "lakehouse",
                "default": "default",
            },
            "poll_interval": {
                "description": "Seconds between two looks of sensors and watchers at a table.",
                "version_added": None,
                "type": "float",
                "example": None,
                "default": "5",
            },
            "console_connections": {
                "description": "The connections in the console, separated by commas. By default "
                "all connections of type fluss in Airflow's database and environment.",
                "version_added": None,
                "type": "string",
                "example": "fluss_default,fluss_archive",
                "default": "",
            },
            "console_actions": {
                "description": "Whether users who may edit a connection may act in its console: "
                "reset and abandon checkpoints, tier, create and drop partitions.",
                "version_added": None,
                "type": "boolean",
                "example": None,
                "default": "False",
            },
            "console_tabs": {
                "description": "Whether the pages of DAGs and tasks have a tab with their "
                "checkpoints.",
                "version_added": None,
                "type": "boolean",
                "example": None,
                "default": "True",
            },
            "console_interval": {
                "description": "Seconds between two looks of the console at a cluster, while "
                "somebody looks at it.",
                "version_added": None,
                "type": "float",
                "example": None,
                "default": "10",
            },
        },
    }


def form_widgets() -> dict[str, Any]:
    """Return the connection form's own fields for Airflow before 3.2, which asks for wtforms."""
    from wtforms import StringField  # type: ignore[import-untyped,unused-ignore]
    from wtforms.validators import any_of  # type: ignore[import-untyped,unused-ignore]

    made = {}
    for name, field in _described()["conn-fields"].items():
        schema = field["schema"]
        made[name] = StringField(
            field["label"],
            [any_of(schema["enum"])] if "enum" in schema else [],
            description=field["description"],
            default=schema["default"],
        )
    return made


def form_behaviour() -> dict[str, Any]:
    """Return which standard fields of that form are hidden, and what the others are called."""
    told = _described()["ui-field-behaviour"]
    return {name.replace("-", "_"): value for name, value in told.items()}


def _described() -> dict[str, Any]:
    (found,) = get_provider_info()["connection-types"]
    return dict(found)
