from __future__ import annotations

import asyncio
import dataclasses

import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.executor.verifier import workunit
from stoilo.server.admission.estimates import MARGIN
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.workunits import WorkunitSpec
from tests.support.server import make_result
from tests.support.serverbench import SOURCE, Bench

OK = {"status": "ok", "value": encode(2)}
OTHER = SOURCE + b"# another\n"


def issue(bench: Bench, key: str = "k1", **fields: object) -> WorkunitSpec:
    name, _ = asyncio.run(bench.issued(key, **fields))
    return bench.engine.specs[name]


def finish(bench: Bench, spec: WorkunitSpec, cpu_s: float) -> None:
    """Let one host bring the canonical result after so much processor time."""
    statement = bench.statement(spec.name.rpartition("_")[0])
    data = make_result(f"{spec.name}_0", statement, OK)
    result = bench.engine.receive(spec.name, 0, data)
    result = dataclasses.replace(result, cpu_s=cpu_s)
    kind = OutcomeKind.CANONICAL
    bench.engine.end(spec.name, kind, canonical=result, valid=(result,))


def stays(spec: WorkunitSpec) -> set[str]:
    return {file.open_name for file in spec.files if file.sticky}


def test_bound_is_far_above_the_estimate(bench: Bench) -> None:
    spec = issue(bench)
    assert spec.fpops_bound >= MARGIN * spec.fpops_est > 0


def test_bounds_hold_the_tasks_own_limits(bench: Bench) -> None:
    spec = issue(bench)
    assert spec.memory_bound > 512 * 1024 * 1024
    assert spec.disk_bound > 2 * spec.result_max_bytes


def test_second_task_of_a_source_is_estimated_from_the_first(bench: Bench) -> None:
    finish(bench, issue(bench), 17.0)
    assert issue(bench, "k2").fpops_est == 17e9


def test_new_source_is_estimated_from_its_level(bench: Bench) -> None:
    finish(bench, issue(bench), 17.0)
    assert issue(bench, "k2", task_module=OTHER).fpops_est == 17e9


@pytest.mark.parametrize("kind", [OutcomeKind.CANCELLED, OutcomeKind.TOO_MANY_ERRORS])
def test_workunit_that_failed_measures_nothing(bench: Bench, kind: OutcomeKind) -> None:
    first = issue(bench)
    bench.engine.end(first.name, kind)
    assert issue(bench, "k2").fpops_est == first.fpops_est


def test_source_stays_with_hosts_when_it_comes_again(bench: Bench) -> None:
    first = issue(bench)
    finish(bench, first, 1.0)
    assert stays(first) == {workunit.REVOCATIONS}
    assert stays(issue(bench, "k2")) == {workunit.REVOCATIONS, workunit.TASK_MODULE}


def test_admission_proof_and_arguments_never_stay(bench: Bench) -> None:
    finish(bench, issue(bench), 1.0)
    own = {workunit.ADMISSION, workunit.PROOF, workunit.ARGUMENTS}
    assert not own & stays(issue(bench, "k2"))
