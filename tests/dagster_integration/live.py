"""A real `dagster dev`, started and stopped by its pid, and asked over GraphQL."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fluss_client.testing.launching import pick
from tests.waiting import scaled, wait_until

LAUNCH = """
mutation ($parameters: ExecutionParams!) {
  launchRun(executionParams: $parameters) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on InvalidSubsetError { message }
  }
}
"""
ENDED = """
query ($id: ID!) {
  runOrError(runId: $id) {
    ... on Run {
      status
      eventConnection {
        events {
          ... on ExecutionStepFailureEvent { error { message causes { message } } }
        }
      }
    }
  }
}
"""
STOP_TIMEOUT_S = 60
POLL_S = 0.5


class Dev:
    """What a running `dagster dev` answers."""

    def __init__(self, port: int, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        self._process = process

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The data of a GraphQL answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=scaled(30)) as answer:
            value = json.load(answer)
        assert "errors" not in value, value["errors"]
        data: dict[str, Any] = value["data"]
        return data

    def launch(
        self,
        location: str,
        assets: Sequence[Sequence[str]] = (),
        job: str = "__ASSET_JOB",
        **tags: str,
    ) -> str:
        """Start a run as the web page does; its id."""
        selector: dict[str, Any] = {
            "repositoryName": "__repository__",
            "repositoryLocationName": location,
            "jobName": job,
        }
        if assets:
            selector["assetSelection"] = [{"path": list(path)} for path in assets]
        given = [{"key": f"dagster/{key}", "value": value} for key, value in tags.items()]
        parameters = {"selector": selector, "executionMetadata": {"tags": given}}
        answer = self.ask(LAUNCH, parameters=parameters)["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        run_id: str = answer["run"]["runId"]
        return run_id

    def finished(self, run_id: str, timeout_s: float) -> str:
        """How a run ended: its status, and what its errors say."""

        def look() -> dict[str, Any] | None:
            run: dict[str, Any] = self.ask(ENDED, id=run_id)["runOrError"]
            return run if run["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

        run = self.wait_for(f"end of run {run_id}", look, timeout_s)
        events = run["eventConnection"]["events"]
        errors = [str(event["error"]) for event in events if event.get("error")]
        return "\n".join([run["status"], *errors])

    def wait_for(self, what: str, look: Callable[[], Any], timeout_s: float) -> Any:
        """What `look` gives once it gives something."""

        def look_at_a_living() -> Any:
            assert self._process.poll() is None, f"it ended: {self.tail()}"
            try:
                return look()
            except OSError:
                return None

        return wait_until(what, look_at_a_living, timeout_s, pause_s=POLL_S, details=self.tail)

    def tail(self) -> str:
        return self._log.read_text()[-4000:]


def heed_interrupts() -> None:
    """A job in the background of a shell ignores them, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def dagster_dev(files: list[Path], home: Path, variables: Mapping[str, str]) -> Iterator[Dev]:
    """`dagster dev` over some files; down again afterwards, with all that it started."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    port = pick(set())
    command = [str(Path(sys.executable).with_name("dagster")), "dev", "-h", "127.0.0.1"]
    command += ["-p", str(port), *(word for file in files for word in ("-f", str(file)))]
    own = {"DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1"}
    log = home / "dev.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables, **own},
            cwd=home,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=heed_interrupts,
        )
        try:
            yield Dev(port, log, process)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(scaled(STOP_TIMEOUT_S))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
