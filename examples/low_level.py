"""Tasks themselves: one, many, wrong ones, ones that are taken up again.

There is no such thing as a task without a server: without `--connect` one is started on
this machine, with two volunteers and the real jail, and ends with the example.
"""

import math
from itertools import pairwise

from commandline import run

import stoilo
from stoilo.low_level import UserError, redundancy


def area(call):
    """Return the area below a function between two bounds, by the midpoint rule."""
    low, high, steps = call["low"], call["high"], call["steps"]
    width = (high - low) / steps
    return width * sum(call["f"](low + (i + 0.5) * width) for i in range(steps))


async def main(conn: stoilo.Connection | None) -> None:
    """Show everything on the project that was given, or on one of our own."""
    if conn is not None:
        await show(conn)
        return
    async with stoilo.local(volunteers=2) as own:
        await show(own)


async def show(conn: stoilo.Connection) -> None:
    """Run one task, many, one that fails, one that is checked, one that is restored."""
    task = conn.create_task(lambda call: call["a"] + call["b"], {"a": 2, "b": 3})
    submitted = await task.submit()
    print("2 + 3 =", await submitted.result())
    assert await conn.restore_task(submitted.task_id).result() == 5
    await integrate(conn)
    failed = await conn.create_task(lambda call: 1 / call["x"], {"x": 0}).result()
    print("an error is a result:", failed)
    assert isinstance(failed, UserError)
    assert abs(await root_of(conn, 2.0) - math.sqrt(2.0)) < 1e-9


async def integrate(conn: stoilo.Connection) -> None:
    """Cut an integral into ten calls that `map` runs."""
    cuts = [math.pi * i / 10 for i in range(11)]
    calls = [
        {"f": lambda x: x * math.sin(x), "low": low, "high": high, "steps": 200}
        for low, high in pairwise(cuts)
    ]
    answers = await conn.map(area, calls)
    parts = [answer for answer in answers if isinstance(answer, float)]
    print("∫ x sin x =", round(sum(parts), 3))
    assert len(parts) == len(calls)  # none is an error
    assert abs(sum(parts) - math.pi) < 1e-3


async def root_of(conn: stoilo.Connection, number: float) -> float:
    """Find a root by three volunteers of whom two must agree, within a tolerance."""
    task = conn.create_task(
        lambda call: math.sqrt(call["n"]),
        {"n": number},
        init_valid_func=lambda root: root > 0.0,
        compare_valid_func=lambda one, other: abs(one - other) < 1e-9,
        redundancy_options=redundancy.CLASSIC,
    )
    root = await task.result()
    assert isinstance(root, float)
    return root


if __name__ == "__main__":
    run(main, __doc__)
