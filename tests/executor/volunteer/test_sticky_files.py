"""Sticky files between the project and its own volunteers, over HTTP."""

from __future__ import annotations

import threading
import time

import pytest

from stoilo.core.digests import content_digest
from stoilo.core.types import Redundancy
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.volunteer.scheduler import Settings
from stoilo.executor.volunteer.transfer import Transfer
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from stoilo.server.engines.embedded.scheduling.sticky_files import KEEP_S
from stoilo.server.engines.workunits import WorkunitFile
from tests.support.engine import (
    BodyValidation,
    EchoExecutor,
    OutcomeRecorder,
    ProjectServer,
    make_spec,
)

PACE = EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=0.05))
ONCE = Redundancy(min_quorum=1, target_results=1, max_error=3, max_total=4)
SHARD = b"shard" * 1000
NAME = content_digest(SHARD)


class World:
    """A project whose clock can be moved, and one volunteer that may come and go."""

    def __init__(self, directory):
        self.ahead = 0
        self.directory = directory
        self.executor = EchoExecutor()
        self.outcomes = OutcomeRecorder()
        self.engine = EmbeddedEngine(
            directory / "engine", options=PACE, clock=lambda: time.time() + self.ahead
        )
        self.engine.start(BodyValidation(), self.outcomes)

    def run(self, name):
        """Let the volunteer do one task that needs the shard."""
        plain = WorkunitFile("arguments", content_digest(b"x"), b"x")
        shard = WorkunitFile("blob_000", NAME, SHARD, sticky=True)
        spec = make_spec(name, files=(plain, shard), redundancy=ONCE)
        self.engine.create_workunits([spec])
        self.wait(lambda: name in self.outcomes.outcomes)

    def wait(self, condition):
        limit = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < limit
            time.sleep(0.01)

    @property
    def kept(self):
        return (self.directory / "volunteer" / "files" / NAME).exists()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    with ProjectServer(made.engine) as server:
        key = made.engine.accounts.ensure("a@example.org", made.engine.now()).weak_key
        volunteer = Volunteer(
            Settings(server.url, key, backoff_s=(0.05, 0.3)),
            Ledger(tmp_path / "volunteer", server.url),
            Transfer(server.url, timeout_s=5),
            made.executor,
        )
        thread = threading.Thread(target=volunteer.run)
        thread.start()
        yield made
        volunteer.stop()
        thread.join()
        volunteer.close()
    made.engine.close()


def test_file_that_nobody_needs_leaves_the_volunteers_disk(world):
    world.run("w_1")
    assert world.kept
    world.ahead = KEEP_S
    world.wait(lambda: not world.kept)


def test_file_that_is_needed_again_stays_and_deleted_ones_come_again(world):
    world.run("w_1")
    world.ahead = KEEP_S - 60
    world.run("w_2")
    world.ahead += KEEP_S - 60
    world.run("w_3")
    assert world.kept
    world.ahead += KEEP_S
    world.wait(lambda: not world.kept)
    world.run("w_4")
    assert world.kept
