"""Versions that shards publish: volunteers have them, and the trainer sends none of them."""

import asyncio

import numpy as np
import pytest

import stoilo
from stoilo.client.capture.arguments import StoredValue
from stoilo.client.session import Journal
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.downpour import AtShards, DownpourSettings
from stoilo.learn.methods.ssp import SspSettings
from stoilo.learn.store.protocol import Change, Push, ShardOptimizer
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.trainers.named import DownpourTrainer, SspTrainer
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.testing.deployment import Deployment
from tests.support.apart import FakeProject, FakeServer, serve_shards, softmax_loss
from tests.support.learning import load_digits
from tests.support.networkshard import NetworkShard

ADAGRAD = ShardOptimizer("adagrad", "adagrad", {"rate": 0.1}, commutes=True)
START = {"w": np.zeros((64, 10)), "b": np.zeros(10, np.float32)}
MODEL = ArrayModel(START, softmax_loss)
DIGITS = load_digits()
DATA = [Part(DIGITS.images[a : a + 40], DIGITS.labels[a : a + 40]) for a in (0, 40)]
ALONE = TrainerOptions(in_flight=1)
LARGE = 64 * 10 * 8


def downpour(place, optimizer):
    settings = DownpourSettings(2, 20, fetch=2)
    return DownpourTrainer(
        place, MODEL, DATA, settings, optimizer=optimizer, options=ALONE
    )


def ssp(place, optimizer):
    settings = SspSettings(2, block=20)
    return SspTrainer(place, MODEL, DATA, settings, optimizer=optimizer, options=ALONE)


class Counting(FakeServer):
    """Counts the bytes that a trainer sends, but for the data."""

    def __init__(self, project):
        super().__init__(project)
        self.sent = 0

    async def put(self, value):
        handle = await super().put(value)
        self.sent += handle.size if "x" not in value else 0
        return handle


@pytest.fixture
def project():
    return FakeProject()


@pytest.fixture
def server(tmp_path, project):
    with serve_shards(tmp_path, 2, project) as places:
        made = ParameterServer.connect(places, [ADAGRAD])
        yield made
        made.close()


async def train(make, server, project, *, publish):
    optimizer = AtShards(server, ADAGRAD, START, block_bytes=1024, publish=publish)
    place = Counting(project)
    async with make(place, optimizer) as trainer:
        trained = await trainer.train()
    return flatten(trained.snapshot.parameters), place.sent, trainer


@pytest.mark.parametrize("make", [downpour, ssp])
async def test_trainer_sends_the_first_version_alone_and_ends_on_the_same_bits(
    make, server, project, tmp_path
):
    found, sent, _ = await train(make, server, project, publish=True)
    with serve_shards(tmp_path / "control", 2, project) as places:
        other = ParameterServer.connect(places, [ADAGRAD])
        wanted, usual, _ = await train(make, other, project, publish=False)
        other.close()
    assert found.tobytes() == wanted.tobytes()
    assert usual > 4 * LARGE  # a copy of each version
    assert sent < 2 * LARGE if make is ssp else sent < usual - 2 * LARGE


async def test_version_is_what_was_read_though_another_trainer_pushes(server, project):
    optimizer = AtShards(server, ADAGRAD, START, publish=True)
    plain, left = server.publish_together, [2]

    def publish(keys):
        found = plain(keys)
        if left[0]:  # somebody else's, between the two
            left[0] -= 1
            change = Change("w", "adagrad", np.ones((64, 10)))
            server.push(Push("other/w", 9 - left[0], [change]))
        return found

    server.publish_together = publish
    slopes = {name: np.ones_like(array) for name, array in START.items()}
    moved = optimizer.step(START, slopes)
    blobs = [project.blobs[digest] for digest, _ in optimizer.published.blobs]
    assert left == [0]
    assert all((moved[key] == a).all() for blob in blobs for key, a in blob.items())


async def test_version_of_a_checkpoint_is_sent_again(server, project):
    *_, trainer = await train(ssp, server, project, publish=True)
    method = trainer.run.method
    assert method.snapshot.published is not None
    method.load(method.save())
    assert method.snapshot.published is None


async def test_threads_have_the_version_itself(server):
    optimizer = AtShards(server, ADAGRAD, START, publish=True)
    async with ssp(None, optimizer) as trainer:
        trained = await trainer.train()
    assert trained.epochs[-1].average_loss < trained.epochs[0].average_loss


def test_blobs_are_named_by_what_they_hold(server, project):
    server.create({"a": np.arange(3.0), "c": np.ones(2)})
    for keys, one in server.publish_together(["a", "c"]).items():
        held = project.blobs[one.digest]
        assert (*held,) == keys
        assert StoredValue.of(held)[0] == one


async def train_there(connection, server, publish):
    wide = {"w": np.zeros((64, 4000)), "b": np.zeros(4000, np.float32)}
    optimizer = AtShards(server, ADAGRAD, wide, publish=publish)
    settings, model = DownpourSettings(1, 20), ArrayModel(wide, softmax_loss)
    async with stoilo.connect(connection, journal=Journal(None)) as conn:
        sent, plain = [], conn.session.wire.upload
        conn.session.wire.upload = lambda *a, **k: (
            sent.append(len(a[1])) or plain(*a, **k)
        )
        async with DownpourTrainer(
            conn, model, DATA, settings, optimizer=optimizer, options=ALONE
        ) as trainer:
            trained = await trainer.train()
    return flatten(trained.snapshot.parameters), sum(sent)


@pytest.mark.slow
def test_volunteers_of_a_server_train_on_what_shards_publish(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = []
    with Deployment(tmp_path / "data", volunteers=1) as running:
        more = ("--project", running.line.connection)
        for publish in (True, False):
            with NetworkShard(tmp_path / f"s{publish}", more=more) as shard:
                server = ParameterServer.connect([shard.place], [ADAGRAD])
                found.append(
                    asyncio.run(train_there(running.line.connection, server, publish))
                )
                server.close()
    (ours, sent), (theirs, usual) = found
    assert ours.tobytes() == theirs.tobytes()
    assert usual > 4 * 64 * 4000 * 8 > 3 * sent
