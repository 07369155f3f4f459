"""The client against the real server: one small project on this machine."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoilo
from stoilo.core.errors import StoiloError, UsageError


def test_without_the_extra_the_message_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "sqlalchemy" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(UsageError, match="STO-U002") as error, stoilo.local():
        pass
    assert "stoilo[server]" in error.value.hint


async def run_everything(folder: Path) -> None:
    async with stoilo.local(volunteers=2, data=folder) as conn:
        adding = conn.create_task(lambda kw: kw["a"] + kw["b"], {"a": 2, "b": 3})
        failing = conn.create_task(lambda kw: 1 / kw["x"], {"x": 0})
        large = conn.create_task(lambda kw: kw["v"] * 2, {"v": np.ones(150_000)})
        mapped = conn.map(lambda kw: kw["x"] ** 2, [{"x": x} for x in range(12)])
        five, error, doubled, squares = await asyncio.gather(
            adding.result(90), failing.result(90), large.result(90), mapped.results(90)
        )
        assert five == 5
        assert isinstance(error, ZeroDivisionError)
        assert error.frames[-1].place.startswith("test_local.py:")
        assert "1 / kw['x']" in error.__notes__[0]
        assert doubled.sum() == 300_000
        assert squares == [x**2 for x in range(12)]
        with pytest.raises(stoilo.SourceRefused) as refused:
            await conn.create_task(lambda kw: eval(kw["x"]), {"x": "1"}).submit()  # noqa: S307 - must be refused
        assert refused.value.findings


def test_tasks_of_every_kind_come_back_from_a_real_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    asyncio.run(run_everything(tmp_path / "data"))


def test_a_script_restores_a_task_of_an_earlier_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with stoilo.local(volunteers=2, data=tmp_path / "data") as conn:
        task_id = conn.create_task(lambda kw: kw["a"], {"a": [1]}).submit().task_id
        path = tmp_path / "data" / "connection.json"
        with stoilo.connect_sync(path) as other:
            assert other.recent_tasks()[0].task_id == task_id
            assert other.restore_task(task_id).result(90) == [1]
            with pytest.raises(StoiloError):
                other.restore_task("0" * 32).result(5)


def test_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    with (
        pytest.raises(StoiloError, match=r"did not become ready: .*is a file"),
        stoilo.local(data=tmp_path / "data"),
    ):
        pass
