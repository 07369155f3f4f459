from __future__ import annotations

import inspect
import sys
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


def add_one(call: dict[str, Any]) -> int:
    return int(call["x"]) + 1


def test_as_completed_mixes_tasks_and_items_of_maps(
    conn: stoilo.SyncConnection,
) -> None:
    run = conn.map(add_one, [{"x": x} for x in range(10)])
    ends = stoilo.as_completed([conn.create_task(add_one, {"x": 40}), run], timeout=60)
    assert len(ends) == 11
    found = list(ends)
    values = [one.result() if hasattr(one, "task_id") else one.result for one in found]
    assert sorted(values) == [*range(1, 11), 41]


def test_as_completed_takes_more_while_it_goes_on(conn: stoilo.SyncConnection) -> None:
    ends = stoilo.as_completed([conn.create_task(add_one, {"x": 0})], timeout=60)
    seen = []
    for ended in ends:
        seen.append(ended.result())
        if seen[-1] < 4:
            ends.add(conn.create_task(add_one, {"x": seen[-1]}))
    assert seen == [1, 2, 3, 4]


def test_as_completed_raises_what_a_map_ends_with(served: Any) -> None:
    served.service.refuse = stoilo.StoiloError("STO-R012", "refused")
    with stoilo.connect_sync(served.address, journal=Journal(None)) as conn:
        ends = stoilo.as_completed([conn.map(add_one, [{"x": 1}])], timeout=60)
        with pytest.raises(stoilo.StoiloError, match="refused"):
            list(ends)


class Bar:
    """What tqdm does with an iterable: `len()` for the total, then one step an item."""

    def __init__(self, items: Any) -> None:
        self.items, self.total, self.steps = items, len(items), 0

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            self.steps += 1
            yield item

    async def __aiter__(self) -> Any:
        async for item in self.items:
            self.steps += 1
            yield item


@pytest.mark.parametrize(
    "wrap", [lambda run: run, lambda run: stoilo.as_completed([run])]
)
def test_progress_bars_see_the_total_and_each_item(
    conn: stoilo.SyncConnection, wrap: Any
) -> None:
    bar = Bar(wrap(conn.map(add_one, [{"x": x} for x in range(9)])))
    assert sorted(item.result for item in bar) == list(range(1, 10))
    assert (bar.total, bar.steps) == (9, 9)


def test_progress_bars_work_in_async_code(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        run = conn.map(add_one, [{"x": x} for x in range(9)])
        bar = Bar(run)
        assert sorted([item.result async for item in bar]) == list(range(1, 10))
        assert [item async for item in run] == []  # each once, and no hanging
        assert (bar.total, bar.steps) == (9, 9)

    with_fake(body, FakeTaskService(in_jail))


def root(call: dict[str, Any]) -> dict[str, Any]:
    return {"x": call["x"], "root": call["x"] ** 0.5 if call["x"] >= 0 else 1 // 0}


def test_a_maps_results_become_a_frame_in_order(conn: stoilo.SyncConnection) -> None:
    frame = conn.map(root, [{"x": x} for x in (4, -1, 9)]).to_pandas()
    assert frame["root"].fillna(0).tolist() == [2, 0, 3]
    assert frame["error"].isna().tolist() == [True, False, True]
    assert "ZeroDivisionError" in frame["error"][1]


def test_a_maps_results_become_polars_columns(conn: stoilo.SyncConnection) -> None:
    frame = conn.map(root, [{"x": x} for x in (4, -1, 9)]).to_polars()
    assert frame["root"].to_list() == [2, None, 3]
    assert frame["error"].is_null().to_list() == [True, False, True]
    assert str(frame.schema["root"]) == "Float64"


def test_frame_of_a_library_that_is_not_there_names_it(
    conn: stoilo.SyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(stoilo.StoiloError, match=r"polars.*STO-U002"):
        conn.map(add_one, [{"x": 1}]).to_polars()
