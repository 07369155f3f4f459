from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import stoilo
from stoilo.client import connection, mapping, sync, task
from stoilo.client.session import Journal
from stoilo.client.sync import background
from stoilo.testing.service import FakeTaskService, Outcome
from tests.support.jailed import JailAnswerer

PAIRS = [
    (connection.Connection, sync.SyncConnection),
    (task.StagedTask, sync.SyncStagedTask),
    (task.SubmittedTask, sync.SyncSubmittedTask),
    (mapping.MapRun, sync.SyncMapRun),
]
ONLY_ASYNC = {"wait", "item_results", "session"}


@pytest.fixture
def served(fake_thread: Any, in_jail: JailAnswerer) -> Any:
    return fake_thread(FakeTaskService(in_jail))


@pytest.fixture
def conn(served: Any) -> Iterator[stoilo.SyncConnection]:
    with stoilo.connect_sync(served.address, journal=Journal(None)) as connection:
        yield connection


def public(cls: type) -> dict[str, Any]:
    names = {name for name in vars(cls) if not name.startswith("_")}
    return {name: vars(cls)[name] for name in names - ONLY_ASYNC}


@pytest.mark.parametrize(("core", "face"), PAIRS)
def test_both_faces_offer_the_same_methods(core: type, face: type) -> None:
    assert public(core).keys() == public(face).keys()
    for name, member in public(core).items():
        other = public(face)[name]
        if isinstance(member, property):
            assert isinstance(other, property)
            continue
        ours, theirs = inspect.signature(member), inspect.signature(other)
        assert list(ours.parameters) == list(theirs.parameters), name
        assert [p.default for p in ours.parameters.values()] == [
            p.default for p in theirs.parameters.values()
        ]
        assert not inspect.iscoroutinefunction(other)


def test_both_connect_functions_take_the_same_arguments() -> None:
    ours = inspect.signature(stoilo.connect).parameters
    theirs = inspect.signature(stoilo.connect_sync).parameters
    assert str(list(ours.values())) == str(list(theirs.values()))


def test_a_script_without_await_gets_its_results(conn: stoilo.SyncConnection) -> None:
    staged = conn.create_task(lambda kw: kw["a"] * 2, {"a": 21})
    assert staged.task_id is None
    submitted = staged.submit()
    assert submitted.result() == 42
    assert conn.restore_task(submitted.task_id).result(timeout=120) == 42
    assert submitted.done()
    assert "finished" in submitted.explain()
    assert conn.create_task(lambda kw: kw, {"k": 1}).result() == {"k": 1}


def test_map_put_and_preview_work_without_await(conn: stoilo.SyncConnection) -> None:
    run = conn.map(lambda kw: kw["x"] + 1, [{"x": x} for x in range(10)])
    assert run.results() == list(range(1, 11))
    assert {item.index for item in run} == set(range(10))
    handle = conn.put([1, 2, 3])
    assert conn.create_task(lambda kw: sum(kw["v"]), {"v": handle}).result() == 6
    assert "return kw" in conn.preview(lambda kw: kw, {})


def test_as_completed_gives_each_task_once(conn: stoilo.SyncConnection) -> None:
    tasks = [conn.create_task(lambda kw: kw["i"], {"i": i}) for i in range(4)]
    done = list(stoilo.as_completed(tasks, timeout=30))
    assert sorted(task.result() for task in done) == [0, 1, 2, 3]


def test_as_completed_leaves_out_what_is_late(served: Any) -> None:
    served.service.polls = 10_000
    with stoilo.connect_sync(served.address, journal=Journal(None)) as conn:
        tasks = [conn.create_task(lambda kw: kw, {}).submit()]
        assert list(stoilo.as_completed(tasks, timeout=0.2)) == []


def test_as_completed_works_in_async_code(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        tasks = [conn.create_task(lambda kw: kw, {}) for _ in range(3)]
        found = [await task.result() async for task in stoilo.as_completed(tasks)]
        assert found == [5, 5, 5]

    with_fake(body, FakeTaskService(lambda _r, _s: Outcome.of(5)))


def test_the_background_loop_is_one_for_all() -> None:
    assert background.loop() is background.loop()
