"""A map with a key: who comes back to it, in another process too, computes nothing twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import stoilo
from stoilo.client.chunks import MapRecord
from stoilo.client.session import Journal
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import UsageError
from stoilo.core.types import TaskState
from stoilo.testing.service import FakeTaskService, Outcome, serve_fake

ITEMS = [{"x": x} for x in range(60)]
LOST = Outcome(state=TaskState.SYSTEM_ERROR, code="STO-R050")


def square(kw: dict[str, Any]) -> Any:
    return kw["x"] ** 2


class Squares(FakeTaskService):
    """Answers maps of `square` itself, and counts how often each item was sent."""

    def __init__(self, lost: frozenset[int] = frozenset(), slow: int = 10**9) -> None:
        super().__init__(self._square, polls=0)
        self.asked: Counter[int] = Counter()
        self.lost, self.slow = lost, slow

    def _square(self, request: Any, _service: FakeTaskService) -> Outcome:
        items = [int(call["x"]) for call in decode(request.arguments)]
        while max(items) >= self.slow:
            time.sleep(0.02)
        self.asked.update(items)
        return Outcome(
            items=tuple(
                LOST if x in self.lost and self.asked[x] == 1 else Outcome.of(x * x)
                for x in items
            )
        )

    def _create(self, request: Any) -> Any:
        known = self.tasks.get(self.keys.get(request.idempotency_key, ""))
        if known is not None and known.request.arguments != request.arguments:
            return UsageError("STO-R011", "the key names another task")
        return super()._create(request)


Body = Callable[[stoilo.Connection], Awaitable[Any]]


def in_turn(service: FakeTaskService, journal: Path | None, *bodies: Body) -> list[Any]:
    """Run each body on a connection of its own, as processes one after the other."""

    async def main() -> list[Any]:
        found = []
        async with serve_fake(service) as address:
            for body in bodies:
                async with stoilo.connect(address, journal=Journal(journal)) as conn:
                    found.append(await body(conn))
        return found

    return asyncio.run(main())


def leave_after(done: int, **options: Any) -> Body:
    """Return a map's beginning: its process dies once so many items are there."""

    async def body(conn: stoilo.Connection) -> None:
        run = conn.map(square, ITEMS, **options)
        async for _ in run:
            if run.progress.done >= done:
                break
        driver = run._start()
        driver.cancel()
        await asyncio.wait({driver})

    return body


def whole(**options: Any) -> Body:
    async def body(conn: stoilo.Connection) -> list[Any]:
        return await conn.map(square, ITEMS, **options)

    return body


@pytest.mark.parametrize(("key", "most"), [("k", 1), (None, 2)], ids=["key", "control"])
@pytest.mark.parametrize("chunk_items", [None, 7])
def test_map_that_is_taken_up_sends_the_rest_only(
    tmp_path: Path, key: str | None, most: int, chunk_items: int | None
) -> None:
    service = Squares()
    options = {"key": key, "chunk_items": chunk_items}
    *_, found = in_turn(
        service, tmp_path / "j", leave_after(20, **options), whole(**options)
    )
    assert found == [x * x for x in range(60)]
    assert max(service.asked.values()) == most


def test_items_without_a_quorum_are_sent_once_more_over_two_processes(
    tmp_path: Path,
) -> None:
    service = Squares(lost=frozenset({1, 58}))
    options = {"key": "k", "chunk_items": 5}
    *_, found = in_turn(
        service, tmp_path / "j", leave_after(20, **options), whole(**options)
    )
    assert found == [x * x for x in range(60)]
    assert {x for x, times in service.asked.items() if times > 1} == {1, 58}


def test_restored_map_has_what_was_sent_and_names_the_rest(tmp_path: Path) -> None:
    async def restore(conn: stoilo.Connection) -> list[Any]:
        return await conn.restore_map("k")

    service = Squares()
    begin = leave_after(14, key="k", chunk_items=7)
    *_, found = in_turn(service, tmp_path / "j", begin, restore)
    sent = {x for x in range(60) if service.asked[x]}
    assert 14 <= len(sent) < 60
    assert all(found[x] == x * x for x in sent)
    unsent = [found[x] for x in range(60) if x not in sent]
    assert all("was not sent" in str(one) for one in unsent)


def test_map_that_was_killed_in_another_process_comes_back(
    tmp_path: Path, fake_thread: Any
) -> None:
    service = Squares(slow=30)
    served = fake_thread(service)
    script = tmp_path / "first.py"
    script.write_text(
        "import os, stoilo\n"
        "from pathlib import Path\n"
        "from stoilo.client.address import Address\n"
        "from stoilo.client.session import Journal\n"
        "def square(kw):\n    return kw['x'] ** 2\n"
        f"address = Address({served.address.target!r}, {served.address.token!r}, None, '')\n"
        f"journal = Journal(Path({str(tmp_path / 'j')!r}))\n"
        "conn = stoilo.connect_sync(address, journal=journal)\n"
        "items = [{'x': x} for x in range(60)]\n"
        "for number, _ in enumerate(conn.map(square, items, key='k', chunk_items=6)):\n"
        "    if number > 10: os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, script], check=False).returncode == 9
    service.slow = 10**9  # what was under way when it was killed ends meanwhile
    with stoilo.connect_sync(served.address, journal=Journal(tmp_path / "j")) as conn:
        run = conn.map(square, ITEMS, key="k", chunk_items=6)
        assert run.results() == [x * x for x in range(60)]
    assert max(service.asked.values()) == 1


@pytest.mark.parametrize("change", ["size", "items", "control"])
def test_key_of_another_map_is_refused(tmp_path: Path, change: str) -> None:
    others = {"size": ITEMS[:59], "items": [*ITEMS[:-1], {"x": -1}], "control": ITEMS}

    async def again(conn: stoilo.Connection) -> Any:
        try:
            return await conn.map(square, others[change], key="k")
        except UsageError as error:
            return error

    *_, found = in_turn(Squares(), tmp_path / "j", whole(key="k"), again)
    if change == "control":
        assert found == [x * x for x in range(60)]
    else:
        assert "the key 'k' is another map's" in found.message


@pytest.mark.parametrize("key", ["", "ä", "a/b", "k" * 53])
def test_keys_that_no_server_takes_are_refused_at_once(
    tmp_path: Path, key: str
) -> None:
    with pytest.raises(UsageError, match="a map's key"):
        MapRecord.open(Journal(tmp_path / "j"), "h:1", key)


def test_unknown_key_and_no_journal_are_told(tmp_path: Path) -> None:
    async def restore(conn: stoilo.Connection) -> None:
        conn.restore_map("k")

    with pytest.raises(UsageError, match="no map was sent from here"):
        in_turn(Squares(), tmp_path / "j", restore)
    with pytest.raises(UsageError, match="needs a journal"):
        in_turn(Squares(), None, restore)


def test_record_outlives_torn_lines_and_keeps_servers_apart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    record = MapRecord.open(journal, "h:1", "k")
    record.begin(9)
    record.note_task(record.add([0, 1, 2, 5], again=False), "t0")
    record.add([1], again=True)
    with record.path.open("ab") as file:
        file.write(b'{"n": 7, "items": "0-\n[]\n{"n":\xff\n{"n": 9, "task": "x"}\n')
    found = MapRecord.open(journal, "h:1", "k")
    assert (found.total, found.chunks) == (9, record.chunks)
    assert found.homes() == {0: 0, 1: 1, 2: 0, 5: 0}
    assert record.path.stat().st_mode & 0o777 == 0o600
    assert MapRecord.open(journal, "h:2", "k").total == 0


def test_bar_is_drawn_as_text_and_html(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body(conn: stoilo.Connection) -> Any:
        run = conn.map(square, ITEMS)
        before = repr(run), run._repr_html_()
        await run.results(progress=True)
        return before, repr(run), run._repr_html_()

    ((before, text, page),) = in_turn(Squares(), tmp_path / "j", body)
    assert before[0] == "<MapRun 0 of 60 done, 0 sent in 0 tasks>"
    assert "<progress value='0' max='60'>" in before[1]
    assert text.startswith("<MapRun 60 of 60 done, 60 sent in ")
    assert "<progress value='60' max='60'>" in page
    assert capsys.readouterr().err.count(f"[{'#' * 30}] 60 of 60 done") == 1


class Notebook:
    """IPython as far as a bar needs it."""

    def __init__(self) -> None:
        self.kernel, self.pages = object(), list[str]()

    def get_ipython(self) -> Notebook:
        return self

    def display(self, what: Any, *, display_id: bool) -> Notebook:
        assert display_id
        self.update(what)
        return self

    def update(self, what: Any) -> None:
        self.pages.append(what._repr_html_())


def test_notebook_gets_one_bar_that_is_drawn_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shell)

    async def body(conn: stoilo.Connection) -> None:
        await conn.map(square, ITEMS).results(progress=True)

    in_turn(Squares(), tmp_path / "j", body)
    assert "0 of 60 done" in shell.pages[0]
    assert "60 of 60 done" in shell.pages[-1]
    assert "60 done" not in capsys.readouterr().err  # gRPC may write there
