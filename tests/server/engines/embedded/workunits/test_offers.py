"""Who waits for work is woken when there is some, and by nothing else."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from engine_bench import EmbeddedBench

from stoilo.server.engines.embedded.workunits.store import Offers
from tests.support.engine import make_spec
from tests.support.server import ManualClock


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


def test_only_results_that_may_be_handed_out_are_offered(tmp_path):
    bench = EmbeddedBench(tmp_path / "engine", ManualClock(1_800_000_000))
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
    bench.engine.close()
