"""`stoilo up --engine stock`: the same server on a stock project (a played one)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import grpc
import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.testing.deployment import Deployment
from tests.support.stocktools.project import make_fake_project

DOUBLE = b"def task(kwargs):\n    return kwargs['x'] * 2\n"
WAIT_S = 60


@pytest.fixture
def fake(tmp_path):
    return make_fake_project(tmp_path / "project")


@pytest.fixture
def server(tmp_path, fake):
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "stoilo.toml").write_text(f'engine_database = "{fake.database_url}"\n')
    options = ("--engine", "stock", "--project-dir", str(fake.root))
    with Deployment(data, options=options) as running:
        yield running


def submit(connection, key):
    page = json.loads(Path(connection).read_text())
    credentials = grpc.ssl_channel_credentials(page["ca"].encode())
    with grpc.secure_channel(page["grpc"], credentials) as channel:
        request = pb.CreateTaskRequest(
            idempotency_key=key,
            task_module=DOUBLE,
            entry="task",
            arguments=encode({"x": 4}),
        )
        metadata = [("authorization", f"Bearer {page['token']}")]
        stub = tasks_pb2_grpc.TaskServiceStub(channel)
        return stub.CreateTask(request, metadata=metadata, timeout=WAIT_S).task_id


def workunits(fake, count):
    end = time.monotonic() + WAIT_S
    database = fake.open_database()
    while len(rows := database.rows("SELECT name FROM workunit ORDER BY id")) < count:
        assert time.monotonic() < end, "the workunit is not made"
        time.sleep(0.1)
    database.close()
    return [row.name for row in rows]


@pytest.mark.slow
def test_task_is_made_in_the_project_once_whatever_is_killed(fake, server):
    assert server.line.project == "http://fake.example/"
    first = submit(server.line.connection, "k1")
    assert workunits(fake, 1) == [f"{first}_1"]
    assert fake.project.socket.is_socket()
    server.kill()
    server.start()
    assert submit(server.line.connection, "k1") == first
    second = submit(server.line.connection, "k2")
    assert workunits(fake, 2) == [f"{first}_1", f"{second}_1"]
    server.stop()
    assert not fake.project.socket.exists()
