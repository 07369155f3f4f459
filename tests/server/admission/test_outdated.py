from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoilo.core.errors import InternalError, TrustError
from stoilo.core.statement import (
    parse_statement,
    render_statement,
    statement_digest,
)
from stoilo.core.types import TaskState
from stoilo.executor.verifier import workunit as workdir
from stoilo.server.admission.outdated import OutdatedWork, Terms


@pytest.fixture
def bench(tmp_path: Path, bench_maker: Callable[..., Any]) -> Any:
    return bench_maker(tmp_path)


def issue(bench: Any) -> tuple[str, Any]:
    workunit, payload = asyncio.run(bench.issued())
    return workunit, parse_statement(payload)


def find(bench: Any, terms: Terms) -> list[str]:
    found = OutdatedWork(bench.store, lambda: terms).find()
    return [attempt.workunit for attempt, _ in found]


def test_workunit_carries_the_revocations_in_force(bench: Any) -> None:
    workunit, _ = issue(bench)
    files = {one.open_name: one.source for one in bench.engine.specs[workunit].files}
    assert files[workdir.REVOCATIONS] == b"revocations"


def test_work_waits_for_a_statement_and_then_goes_out(
    tmp_path: Path,
    bench_maker: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_maker(tmp_path)
    writer = bench.server.pipeline._workunits

    def none(_: int) -> bytes:
        raise InternalError("STO-L160", "none is in force")

    monkeypatch.setattr(writer, "_revocations", none)
    with pytest.raises(InternalError, match="STO-L160"):
        issue(bench)
    assert bench.engine.specs == {}
    monkeypatch.undo()
    bench.server.pipeline.run_once()
    assert len(bench.engine.specs) == 1


@pytest.mark.parametrize(
    "terms",
    [
        lambda _: Terms(epochs=frozenset({1})),
        lambda _: Terms(min_epoch=2),
        lambda said: Terms(flavors=frozenset({said.flavor})),
        lambda said: Terms(digests=frozenset({said.task_module})),
        lambda said: Terms(digests=frozenset({said.submitter})),
        lambda said: Terms(
            digests=frozenset({statement_digest(render_statement(said))})
        ),
    ],
)
def test_work_that_names_something_withdrawn_is_found(
    bench: Any,
    terms: Callable[[Any], Terms],
) -> None:
    workunit, said = issue(bench)
    assert find(bench, terms(said)) == [workunit]


@pytest.mark.parametrize(
    "terms",
    [
        Terms(),
        Terms(
            epochs=frozenset({2}),
            digests=frozenset({"a" * 64}),
            flavors=frozenset({"b" * 64}),
        ),
    ],
)
def test_other_work_is_left_alone(bench: Any, terms: Terms) -> None:
    issue(bench)
    assert find(bench, terms) == []


def test_work_of_a_withdrawn_epoch_is_admitted_anew(bench: Any) -> None:
    workunit, _ = issue(bench)
    terms = Terms(epochs=frozenset({1}))
    bench.server.pipeline._outdated = OutdatedWork(bench.store, lambda: terms)
    bench.epoch(2)
    for _ in range(3):
        bench.server.pipeline.run_once()
    renewed = workunit.replace("_1", "_2")
    assert set(bench.engine.ended) == {workunit}
    assert parse_statement(bench.statement(workunit.partition("_")[0], 2)).epoch == 2
    assert renewed in bench.engine.specs


def test_work_of_a_withdrawn_source_ends_with_the_code(bench: Any) -> None:
    workunit, said = issue(bench)
    terms = Terms(digests=frozenset({said.task_module}))
    bench.server.pipeline._outdated = OutdatedWork(bench.store, lambda: terms)
    bench.signer.fail = TrustError("STO-A046", "a part of this task is withdrawn")
    for _ in range(3):
        bench.server.pipeline.run_once()
    answer = bench.poll(workunit)
    assert (answer.state, answer.code) == (TaskState.SYSTEM_ERROR.value, "STO-A046")
    assert workunit in bench.engine.ended
