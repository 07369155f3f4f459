"""`task.check()` and `conn.check()`: the gate at home, findings where they were written."""

import re

import numpy as np


def fine(call):
    return call["x"] * 2


def hostile(call):
    return call["x"].__globals__


def test_good_task_is_admitted_and_nothing_is_sent(with_fake):
    async def body(conn, service):
        checked = conn.create_task(fine, {"x": 1}).check()
        return checked, service.calls["CreateTask"] + service.calls["CreateTasks"]

    checked, sent = with_fake(body)
    assert (checked.admitted, checked.level, checked.findings) == (True, "pure", ())
    assert (repr(checked), sent) == ("admitted at level pure", 0)


def test_refused_task_names_the_writers_own_line(with_fake):
    async def body(conn, _):
        return conn.check(hostile, {"x": "a"})

    checked = with_fake(body)
    line = hostile.__code__.co_firstlineno + 1
    assert not checked.admitted
    assert re.search(rf"test_checking\.py:{line}  .*\[STO-", str(checked))
    assert "the gate refuses the source" in str(checked)
    assert checked.error().code == "STO-R020"


def test_arrays_among_the_arguments_need_their_level(with_fake):
    async def body(conn, _):
        small, large = np.zeros(3), np.zeros(300_000)
        return [conn.check(fine, {"x": one}).level for one in (1, small, large)]

    assert with_fake(body) == ["pure", "numeric", "numeric"]


def test_level_that_is_asked_for_is_the_one_that_is_checked(with_fake):
    async def body(conn, _):
        return conn.create_task(fine, {"x": 1}, level="numeric").check()

    assert with_fake(body).verdict.level == "numeric"


def test_validators_are_checked_too(with_fake):
    async def body(conn, _):
        return conn.check(fine, {"x": 1}, lambda value: bool(value.__globals__))

    checked = with_fake(body)
    assert (checked.admitted, "in the validators" in str(checked)) == (False, True)


def test_notebook_shows_it_escaped(with_fake):
    async def body(conn, _):
        return conn.check(hostile, {"x": "a"})

    shown = with_fake(body)._repr_html_()
    assert shown.startswith("<pre>")
    assert "<module" not in shown.removeprefix("<pre>")
