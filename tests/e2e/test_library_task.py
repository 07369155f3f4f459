"""A task over a library on the whole path: client, gate, log, signer, volunteers, jails."""

import asyncio

import pytest

import stoilo
from stoilo.flavors.manifest import shipped_flavors

pytest.importorskip("scipy")
HELD = {module for flavor in shipped_flavors() for module in flavor.modules}
if "scipy" not in HELD:
    pytest.skip("no shipped flavor holds scipy", allow_module_level=True)


def solve(call):
    import numpy as np  # noqa: PLC0415 - an extra, and part of the task
    from scipy import linalg  # noqa: PLC0415

    rng = np.random.default_rng(call["seed"])
    found = linalg.solve(rng.normal(size=(5, 5)), np.ones(5))
    return [float(one) for one in found]


async def run():
    async with stoilo.local(volunteers=2) as conn:
        task = conn.create_task(solve, kwargs={"seed": 3})
        return await task.result()


def test_task_over_scipy_gives_what_it_gives_here():
    assert asyncio.run(run()) == solve({"seed": 3})
