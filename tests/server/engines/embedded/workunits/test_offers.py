"""Who waits for work is woken when there is some; steps do not move what is at rest."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from contract import SINGLE
from engine_bench import EmbeddedBench

from stoilo.server.engines.embedded.workunits import validator
from stoilo.server.engines.embedded.workunits.offers import Offers
from stoilo.server.engines.interface import ResultCheck, ResultVerdict
from tests.support.engine import BodyValidation, make_spec
from tests.support.server import ManualClock


@pytest.fixture
def bench(tmp_path):
    made = EmbeddedBench(tmp_path / "engine", ManualClock(1_800_000_000))
    yield made
    made.engine.close()


def test_note_of_another_thread_ends_every_wait():
    offers = Offers()

    async def both():
        waits = [asyncio.create_task(offers.wait(0, 20.0)) for _ in range(2)]
        await asyncio.sleep(0)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(offers.note)
        return await asyncio.gather(*waits)

    assert asyncio.run(both()) == [1, 1]


def test_wait_that_comes_after_the_note_does_not_wait():
    offers = Offers()
    offers.note()
    assert asyncio.run(offers.wait(0, 20.0)) == 1


def test_wait_ends_without_a_note_and_leaves_nothing():
    offers = Offers()
    assert asyncio.run(offers.wait(0, 0.01)) == 0
    assert not offers._waiting


def test_only_results_that_may_be_handed_out_are_offered(bench):
    counts = [bench.engine.offers.count]
    bench.engine.create_workunits([make_spec("x_1")])
    counts.append(bench.engine.offers.count)
    (name,) = bench.fetch(1)
    bench.upload(name, b"")
    bench.report(1, name, exit_status=1)  # another result is made in its place
    bench.engine.step(bench.validation, bench.outcomes)
    counts.append(bench.engine.offers.count)
    bench.fetch(2)
    bench.engine.step(bench.validation, bench.outcomes)
    counts.append(bench.engine.offers.count)
    assert counts == [0, 1, 2, 2]


class Soon(BodyValidation):
    """Says at first that every check is pending, and what it is to whoever waits for it."""

    waits = 0

    def check(self, result):
        if not self.waits:
            return ResultCheck(ResultVerdict.PENDING, "STO-R065")
        return super().check(result)

    def wait(self, workunit, seconds):
        self.waits += bool(workunit and seconds > 0)
        return True


def give_result(bench):
    bench.engine.create_workunits([make_spec("x_1", redundancy=SINGLE)])
    (name,) = bench.fetch(1)
    bench.finish(1, name, b"value")


@pytest.mark.parametrize("started", [True, False])
def test_check_that_ends_soon_is_waited_for_in_the_step_that_asks(
    bench, started, monkeypatch
):
    monkeypatch.setattr(validator, "PATIENCE_S", 60.0)
    if started:
        bench.engine._mover.start()
    give_result(bench)
    bench.engine.step(Soon(), bench.outcomes)
    assert len(bench.outcomes.outcomes) == int(started)


def test_only_result_wanted_ends_in_three_transactions(bench, monkeypatch):
    give_result(bench)
    begun, write = [], bench.engine._database.write
    monkeypatch.setattr(
        bench.engine._database, "write", lambda: begun.append(1) or write()
    )
    bench.engine.step(bench.validation, bench.outcomes)
    assert (len(bench.outcomes.outcomes), len(begun)) == (1, 3)  # asked, ended, taken
