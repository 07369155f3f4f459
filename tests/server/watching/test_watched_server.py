"""A running server is watched: figures move with work, and readiness with its parts."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stoilo.server.watching.metrics import METRICS
from stoilo.signer.process.client import SignerClient
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own server
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def health(connection: Path) -> int:
    page = json.loads(connection.read_text())
    credentials = grpc.ssl_channel_credentials(page["ca"].encode())
    with grpc.secure_channel(page["grpc"], credentials) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=20).status)


def value(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STOILO_SERVER_WATCH", "127.0.0.1:0")
    with Deployment(tmp_path / "data", volunteers=2) as running:
        yield running


def failing(watch: str) -> list[str]:
    """Return the names of the checks that do not hold."""
    checks = json.loads(read(f"{watch}readyz")[1])["checks"]
    return [one["name"] for one in checks if not one["ok"]]


def test_figures_move_with_work_and_readiness_with_the_signer(
    deployment: Deployment,
) -> None:
    watch = (deployment.data / "run" / "watch").read_text().strip()
    connection = Path(deployment.line.connection)
    with RawClient(connection) as client:
        assert client.wait(client.submit()).state == "succeeded"
    until(
        lambda: (
            value(read(f"{watch}metrics")[1], 'stoilo_tasks{state="succeeded"}') == 1
        )
    )
    text = read(f"{watch}metrics")[1]
    assert value(text, "stoilo_admissions_total") == 1
    assert value(text, 'stoilo_rpc_seconds_count{code="OK",method="CreateTask"}') == 1
    missing = {one.name for one in METRICS if f"# TYPE {one.name} " not in text}
    assert not missing
    serving = health_pb2.HealthCheckResponse
    until(lambda: read(f"{watch}readyz")[0] == 200)
    until(lambda: health(connection) == serving.SERVING)
    with SignerClient(deployment.data / "run" / "signer.sock") as signer:
        pid = signer.ping().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: "signer" in failing(watch))
        assert read(f"{watch}readyz")[0] == 503
        until(lambda: health(connection) == serving.NOT_SERVING)
        assert read(f"{watch}healthz") == (200, '{"alive":true}')
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: read(f"{watch}readyz")[0] == 200)
    until(lambda: health(connection) == serving.SERVING)
