# ruff: noqa: ISC004 - the cells are long texts
"""The thesis's listing 3, typed as printed, and cells in the shape of its notebook."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoilo
from stoilo.client.address import Address
from stoilo.client.connection import Connection
from stoilo.testing.service import FakeTaskService, serve_fake
from tests.support.jailed import JailAnswerer

LISTING_3 = """\
import stoilo

conn = await stoilo.connect(server_address)

# synchronous non-blocking creation
task = conn.create_task(
    kwargs={"a": 2, "b": 3},
    func=lambda kwargs: kwargs["a"] + kwargs["b"]
)
# task has not been submitted to the server yet
print(task.task_id is None) # True

# asynchronous submission, will return fairly quickly
task = await task.submit()
# task has been submitted and the task_id has been assigned
print(task.task_id) # some uuid

# asynchronous waiting for the result, takes some time to finish
result = await task.result()
print(result)
"""

CELLS = [
    "import stoilo\nimport asyncio\nimport math\nimport numpy as np\n"
    "conn = await stoilo.connect(server_address)",
    "options = stoilo.low_level.redundancy.CreateOptions(min_quorum=3, "
    "max_total_results=5)\n"
    "def roots(kwargs):\n"
    "    import math\n"
    "    d = math.sqrt(kwargs['b'] ** 2 - 4 * kwargs['c'])\n"
    "    return 2 / (2 / (d - kwargs['b']) - 2 / (d + kwargs['b']))\n"
    "task = conn.create_task(kwargs=dict(b=-3, c=2), func=roots,\n"
    "    init_valid_func=lambda res: res is None or isinstance(res, float),\n"
    "    compare_valid_func=lambda x, y: abs(x - y) < 1e-6,\n"
    "    redundancy_options=options)\n"
    "task = await task.submit()",
    "task = conn.restore_task(task.task_id)\nmean = await task.result()",
    "async def integrate(conn, f, a, b):\n"
    "    def worker(kwargs):\n"
    "        x_0, x_n, n, f = (kwargs[k] for k in ('x_0', 'x_n', 'n', 'f'))\n"
    "        h = (x_n - x_0) / n\n"
    "        inner = sum(f(x_0 + j * h) for j in range(1, n))\n"
    "        return h * (0.5 * (f(x_0) + f(x_n)) + inner)\n"
    "    size = (b - a) / 10\n"
    "    tasks = [conn.create_task(\n"
    "        kwargs={'x_0': a + i * size, 'x_n': a + (i + 1) * size, 'n': 100, 'f': f},\n"
    "        func=worker,\n"
    "        redundancy_options=stoilo.low_level.redundancy.TRIVIAL_OPTIONS)\n"
    "        for i in range(10)]\n"
    "    return sum(await asyncio.gather(*(t.result() for t in tasks)))\n"
    "integral = await integrate(conn, lambda x: x * math.sin(x), 0, math.pi)",
    "failing = await conn.create_task(kwargs={'a': 1, 'b': 0},\n"
    "    func=lambda kwargs: kwargs['a'] / kwargs['b']).result()\n"
    "kind = isinstance(failing, stoilo.low_level.UserError)",
    "A = np.array([[3, 1], [1, 4]], dtype=float)\n"
    "def solve(kwargs):\n"
    "    import numpy as np_\n"
    "    return np_.linalg.solve(kwargs['A'], kwargs['b']).tolist()\n"
    "solved = await conn.create_task(kwargs=dict(A=A, b=np.array([1.0, 2.0])),\n"
    "    func=solve, flavor=stoilo.low_level.flavors.DEFAULT).result()",
]


@pytest.fixture
def run_cells(
    in_jail: JailAnswerer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[list[str]], dict[str, Any]]:
    """Run cells with ``await`` at their top, as a notebook does."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def main(cells: list[str]) -> dict[str, Any]:
        async with serve_fake(FakeTaskService(in_jail)) as address:
            space: dict[str, Any] = {"__name__": "__main__", "server_address": address}
            for number, cell in enumerate(cells):
                name = f"<ipython-input-{number}-test>"
                rows = cell.splitlines(keepends=True)
                linecache.cache[name] = (len(cell), None, rows, name)
                flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                code = compile(cell, name, "exec", flags=flags, dont_inherit=True)
                done = eval(code, space)  # noqa: S307 - our own listing
                if inspect.isawaitable(done):
                    await done
            await space["conn"].close()
            return space

    return lambda cells: asyncio.run(main(cells))


def test_listing_3_runs_as_printed(
    run_cells: Callable[[list[str]], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    space = run_cells([LISTING_3])
    first, task_id, result = capsys.readouterr().out.splitlines()
    assert (first, result) == ("True", "5")
    assert space["task"].task_id == task_id
    assert isinstance(space["conn"], Connection)


def test_notebook_cells_run_one_by_one(
    run_cells: Callable[[list[str]], dict[str, Any]],
) -> None:
    space = run_cells(CELLS)
    assert space["mean"] == pytest.approx(4 / 3)
    assert space["integral"] == pytest.approx(3.14159, abs=1e-3)
    assert space["kind"]
    assert space["solved"] == pytest.approx([2 / 11, 5 / 11])


def test_connect_accepts_an_address_object() -> None:
    assert stoilo.Address is Address
