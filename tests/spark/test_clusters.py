"""Clusters by alias: what travels is no secret, and each process finds its own."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from fluss_client import Config
from fluss_client.errors import ConfigError
from fluss_orchestrate.core.clusters import ClusterRef, secret_variables, variable_of

SECRET = "hunter-2"
PASSWORD = "security.sasl.password"


def test_a_secret_does_not_travel() -> None:
    config = Config(
        {
            "bootstrap.servers": "h:1",
            "cluster.alias": "prod-1",
            "security.protocol": "sasl",
            "security.sasl.username": "u",
            PASSWORD: SECRET,
        }
    )
    ref = ClusterRef.of(config)
    assert ref.alias == "prod-1"
    assert SECRET not in repr(ref) + str(ref.to_json()) + str(pickle.dumps(ref))
    assert ClusterRef.from_json(ref.to_json()) == ref
    assert secret_variables(config) == {"FLUSS_CLUSTER_PROD_1_SECURITY_SASL_PASSWORD": SECRET}
    with pytest.raises(ConfigError, match="FLUSS_CLUSTER_PROD_SECURITY_SASL_PASSWORD"):
        ClusterRef("prod", {PASSWORD: SECRET})


def test_the_environment_adds_what_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable_of("prod", PASSWORD), SECRET)
    monkeypatch.setenv(variable_of("prod", "bootstrap.servers"), "from-environment:1")
    config = ClusterRef("prod", {"bootstrap.servers": "given:1"}).config()
    assert config.security_sasl_password == SECRET
    assert config.bootstrap_servers == "given:1"
    assert config.resolved_alias() == "prod"
    assert ClusterRef("prod").config().bootstrap_servers == "from-environment:1"
    assert ClusterRef("other").config().security_sasl_password == ""


def test_a_file_that_only_its_owner_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clusters.ini"
    path.write_text(f"[prod]\nbootstrap.servers = a:1,b:2\n{PASSWORD} = {SECRET}%x\n")
    monkeypatch.setenv("FLUSS_CLUSTERS_FILE", str(path))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        ClusterRef("prod").config()
    path.chmod(0o600)
    config = ClusterRef("prod").config()
    assert config.security_sasl_password == f"{SECRET}%x"
    assert config.bootstrap_servers == "a:1,b:2"
    path.write_text(f"{SECRET} without a section")
    with pytest.raises(ConfigError) as caught:
        ClusterRef("prod").config()
    assert SECRET not in str(caught.value)
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        ClusterRef("prod").config()


def test_one_connection_per_process(tmp_path: Path) -> None:
    ref = ClusterRef("default", {"bootstrap.servers": f"embedded:{tmp_path}"})
    assert ref.connection() is ref.connection()
    child = os.fork()
    if child == 0:
        try:
            databases = ref.connection().get_admin().result().list_databases().result()
            os._exit(0 if isinstance(databases, list) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_seam_imports_no_spark() -> None:
    """Schedulers submit without Spark in their process."""
    program = (
        "import sys\n"
        "from fluss_orchestrate.core.spark_submit import job, load_spec, submit\n"
        "import fluss_orchestrate.spark.loading.splits\n"
        "assert not any(name.split('.')[0] == 'pyspark' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_script_is_a_module_and_no_function_hides_it() -> None:
    """`spark-submit …/bulk_load.py` and `python -m` find it; the function has another name."""
    import fluss_orchestrate.spark as public

    script = importlib.import_module("fluss_orchestrate.spark.bulk_load")
    assert public.bulk_load is script
    assert "bulk_load" not in public.__all__
    assert callable(public.submit_load)
    for name in public.__all__:
        assert getattr(public, name).__name__ == name
