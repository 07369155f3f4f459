"""Reads by tag, and versions that become blobs of a project without passing the trainer."""

import asyncio

import numpy as np
import pytest

import stoilo
from stoilo.client.capture.arguments import StoredValue
from stoilo.client.session import Journal
from stoilo.core.errors import UsageError
from stoilo.learn.backends.server import make_redundancy
from stoilo.learn.store.protocol import Change, Push
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.workers import ClockService, Worker
from stoilo.testing.deployment import Deployment
from tests.support.networkshard import NetworkShard

START = {"a": np.arange(4.0), "b": 3, "c": {"x": 1}}


@pytest.fixture
def server():
    made = ParameterServer({name: LocalShard() for name in ("s0", "s1")})
    made.create(START)
    yield made
    made.close()


def add(server, key, change, sequence=0):
    server.push(Push("r/w", sequence, [Change(key, "add", change)]))


def tags_of(server):
    return {
        key: one.tag
        for key, one in server.read_tagged(dict.fromkeys(START, "")).items()
    }


def test_reader_that_has_the_tag_gets_no_value_and_others_do(server):
    known = tags_of(server)
    add(server, "a", np.ones(4))
    found = server.read_tagged({**known, "c": "other"})
    assert [one.value is None for one in found.values()] == [False, True, False]
    assert found["a"].value.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert found["a"].tag != known["a"]
    assert found["c"].tag == known["c"]


def test_tag_is_the_name_of_the_values_blob(server):
    for key, one in server.read_tagged(dict.fromkeys(START, "")).items():
        stored, data = StoredValue.of(START[key])
        assert (one.tag, one.size) == (stored.digest, len(data))


def test_value_that_comes_back_has_its_old_tag(server):
    known = tags_of(server)
    add(server, "b", 5)
    assert tags_of(server)["b"] != known["b"]
    add(server, "b", -5, sequence=1)
    assert tags_of(server) == known


def test_what_has_not_changed_does_not_travel_again(tmp_path):
    shard = RemoteShard(tmp_path / "s.db")
    large = {f"k{index}": np.full(1 << 20, float(index)) for index in range(6)}
    shard.create(large)  # 48 MiB: in several frames
    first = shard.read_tagged(dict.fromkeys(large, ""))
    assert all(np.array_equal(one.value, large[key]) for key, one in first.items())
    shard.apply(Push("r/w", 0, [Change("k3", "add", np.ones(1 << 20))]))
    again = shard.read_tagged({key: one.tag for key, one in first.items()})
    assert [key for key, one in again.items() if one.value is not None] == ["k3"]
    shard.close()


def test_worker_fetches_what_changed_and_keeps_the_rest(server):
    asked = []
    plain = server.read_tagged
    server.read_tagged = lambda known: asked.append(plain(known)) or asked[-1]
    worker = Worker("w", server, ClockService(["w"]), total=3)
    for iteration in worker.iterations():
        assert worker.read_many(["a", "b"])["b"] == 3
        assert worker.read("a")[0] == iteration
        worker.update("a", np.ones(4))
    came = [[k for k, one in found.items() if one.value is not None] for found in asked]
    assert came == [["a", "b"], ["a"], ["a"]]


def test_shard_without_a_project_publishes_nothing(tmp_path):
    with NetworkShard(tmp_path / "s") as process:
        server = ParameterServer.connect([process.place])
        server.create(START)
        with pytest.raises(UsageError, match="STO-C045"):
            server.publish(["a"])
        assert server.read(["b"])["b"].value == 3
        server.close()


def total(call):
    return float(call["w"].sum()) + call["more"]


async def ask_volunteers(connection, handle, journal):
    async with stoilo.connect(connection, journal=Journal(journal)) as conn:
        sent = []
        plain = conn.session.wire.upload
        conn.session.wire.upload = lambda *a, **k: (
            sent.append(len(a[1])) or plain(*a, **k)
        )
        task = conn.create_task(
            total, {"w": handle, "more": 0.5}, redundancy_options=make_redundancy()
        )
        value = await (await task.submit()).result()
        return value, sent


@pytest.mark.slow
def test_volunteers_get_a_version_from_the_shard_and_never_through_the_trainer(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    large = np.full(200_000, 0.25)
    with Deployment(tmp_path / "data", volunteers=1) as running:
        file = str(running.line.connection)
        more = ("--project", file)
        with NetworkShard(tmp_path / "s", more=more) as process:
            server = ParameterServer.connect([process.place])
            server.create({"w": large})
            journal = tmp_path / "journal"
            for sequence in range(2):  # each version is a blob of its own
                handle = server.publish(["w"])["w"]
                assert server.publish(["w"])["w"] == handle
                value, sent = asyncio.run(ask_volunteers(file, handle, journal))
                assert value == 50_000.5 + 200_000 * sequence
                assert sum(sent) < large.nbytes / 10
                server.push(
                    Push("r/w", sequence, [Change("w", "add", np.ones(200_000))])
                )
            server.close()
        # Control: the value itself goes through the trainer.
        _, sent = asyncio.run(ask_volunteers(file, large + 0.5, journal))
        assert sum(sent) > large.nbytes
