"""The figures as text: what cannot be read is left out, and nothing is read twice."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.watching import metrics
from stoilo.server.watching.metrics import (
    BOUNDS_S,
    KEPT_S,
    PUBLIC_S,
    Collector,
    Sources,
    call_times,
)
from stoilo.server.watching.readiness import Check, LogFigures, Readiness
from tests.support.server import ManualClock


def away(*_: object) -> Any:
    raise InternalError("STO-R030", "the database is away")


@pytest.fixture
def sources(tmp_path) -> Sources:
    """A server whose databases do not answer; its log and disks do."""
    return Sources(
        store=SimpleNamespace(read=away),
        engine=SimpleNamespace(figures=away),
        log=lambda: LogFigures(9, 7, 1.5),
        pipeline=SimpleNamespace(signed=3, refused=1),
        release=away,
        epoch_rate=away,
        readiness=lambda: Readiness((Check("database", "away"), Check("disk"))),
        places={"data": tmp_path},
        clock=lambda: 0,
        validators=lambda: 0,
    )


def series(text: bytes) -> dict[str, float]:
    lines = re.findall(r"^([^#].*) (\S+)$", text.decode(), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def test_part_that_fails_leaves_its_figures_out_and_no_others(sources) -> None:
    found = series(Collector(sources).render())
    assert found["stoilo_log_unpublished_leaves"] == 2
    assert found['stoilo_ready_check{check="disk"}'] == 1
    assert found["stoilo_ready"] == 0
    assert not [
        one for one in found if one.startswith(("stoilo_tasks", "stoilo_hosts"))
    ]


def test_those_who_ask_at_once_share_one_reading(sources) -> None:
    clock = ManualClock()
    collector = Collector(sources, clock)
    sources.rpc.labels("PollTask", "OK").observe(0.003)
    first = collector.render()
    sources.rpc.labels("PollTask", "OK").observe(0.003)
    assert collector.render() == first
    clock.now += int(KEPT_S) + 1
    name = 'stoilo_rpc_seconds_count{code="OK",method="PollTask"}'
    assert (series(first)[name], series(collector.render())[name]) == (1, 2)


def test_calls_fall_into_buckets_and_no_moment_of_creation_is_shown(sources) -> None:
    for took in (0.0, BOUNDS_S[0], 0.003, 99.0):
        sources.http.labels("sched", "2xx").observe(took)
    found = series(Collector(sources).render())
    labels = 'route="sched",status="2xx"'
    assert found[f'stoilo_http_seconds_bucket{{le="0.002",{labels}}}'] == 2
    assert found[f'stoilo_http_seconds_bucket{{le="10.0",{labels}}}'] == 3
    assert found[f'stoilo_http_seconds_bucket{{le="+Inf",{labels}}}'] == 4
    assert not [one for one in found if "_created" in one]


def test_two_servers_in_one_process_keep_figures_of_their_own(sources) -> None:
    other = call_times("stoilo_rpc_seconds")
    other.labels("PollTask", "OK").observe(1)
    assert "stoilo_rpc_seconds_count" not in Collector(sources).render().decode()


def test_what_anybody_may_see_is_read_once_a_minute(sources, monkeypatch) -> None:
    clock, read = ManualClock(), iter(range(5))
    monkeypatch.setattr(metrics, "read_public", lambda _: {"tasks": next(read)})
    collector = Collector(sources, clock)
    assert [collector.public() for _ in range(9)] == [{"tasks": 0}] * 9
    clock.now += int(PUBLIC_S) + 1
    assert collector.public() == {"tasks": 1}


def test_nothing_is_shown_while_the_databases_are_away(sources) -> None:
    assert Collector(sources).public() == {}
