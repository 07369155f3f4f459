"""A disk that does not remove files: workunits move on."""

from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench

from stoilo.server.engines.embedded.engine import EmbeddedEngine
from tests.support.engine import make_spec

FAULTS = 3


@pytest.fixture
def bench(tmp_path, clock):
    made = EmbeddedBench(tmp_path / "engine", clock)
    yield made
    made.engine.close()


def finish(bench, name):
    bench.engine.create_workunits([make_spec(name)])
    for user in (1, 2):
        (copy,) = (one for one in bench.fetch(user) if one.startswith(name))
        bench.finish(user, copy, b"same")
    return copy


def make_irremovable(bench, copy):
    """Put something where a part would be that cannot be removed like a file."""
    part = bench.directory / "uploads" / f"{bench.uploads[copy].name}.part"
    part.mkdir()
    return part


def test_result_that_cannot_be_removed_holds_up_no_workunit(bench):
    part = make_irremovable(bench, finish(bench, "w_1"))
    finish(bench, "w_2")
    bench.settle()
    assert set(bench.outcomes.outcomes) == {"w_1", "w_2"}
    assert bench.engine.uploads._room.taken > 0  # as long as it is there
    bench.restart()
    part.rmdir()
    bench.restart()
    assert bench.engine.uploads._room.taken == 0


def test_part_that_cannot_be_removed_holds_up_no_workunit(bench):
    bench.engine.create_workunits([make_spec("w_0")])
    make_irremovable(bench, *bench.fetch(3))
    bench.restart()
    bench.pass_time(7 * 3600)
    finish(bench, "w_1")
    bench.settle()
    assert bench.outcomes.kind("w_1")


class FaultyEngine(EmbeddedEngine):
    """Its first steps meet an error of the disk."""

    faults = FAULTS

    def step(self, validation, assimilator):
        if self.faults:
            self.faults -= 1
            self._round.wake()
            raise OSError(5, "Input/output error")
        return super().step(validation, assimilator)


def test_error_of_the_disk_does_not_end_the_engines_thread(tmp_path, clock, wait_until):
    bench = EmbeddedBench(tmp_path / "engine", clock)
    bench.engine.close()
    bench.engine = FaultyEngine(tmp_path / "engine", clock=clock)
    finish(bench, "w_1")
    bench.engine.start(bench.validation, bench.outcomes)
    wait_until(lambda: bench.outcomes.outcomes)
    bench.engine.close()
    assert bench.engine.faults == 0
