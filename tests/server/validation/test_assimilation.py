"""What the server does with outcomes that are none of its tasks'."""

from __future__ import annotations

import asyncio
import logging

import pytest

from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.server.engines.interface import OutcomeKind, WorkunitOutcome
from stoilo.server.validation.results import split_workunit
from tests.support.serverbench import Bench


@pytest.mark.parametrize(
    "name", ["b8ff_first", "x", "", "task_", "task_-1", "task_²", "task_1"]
)
def test_stranger_s_outcome_is_named_and_taken(
    bench: Bench, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = WorkunitOutcome(name, OutcomeKind.CANCELLED)
    with caplog.at_level(logging.WARNING):
        bench.server.keeper.assimilate(stranger)
    assert f"outcome of unknown workunit {name} ignored" in caplog.text


def test_name_of_ours_has_a_task_and_an_attempt() -> None:
    assert split_workunit("a_b_12") == ("a_b", 12)


def test_limit_that_ended_a_task_is_named_with_its_number(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued("k", limits=pb.RunLimits(cpu_s=7)))
    bench.server.keeper.assimilate(
        WorkunitOutcome(name, OutcomeKind.TOO_MANY_ERRORS, code="STO-S011")
    )
    said = bench.poll(name.partition("_")[0]).error_text
    assert "cpu_s=7" in said
    assert "stoilo policy show pure" in said
