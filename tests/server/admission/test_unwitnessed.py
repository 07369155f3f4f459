from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoilo.audit.format.policy import LogPolicy
from stoilo.core.signatures import PrivateKey
from stoilo.server.admission.outdated import OutdatedWork, Terms, is_accepted
from tests.support.gate import GateBench


@pytest.fixture(scope="module")
def witnessed(tmp_path_factory: pytest.TempPathFactory) -> GateBench:
    return GateBench(tmp_path_factory.mktemp("gate") / "root", witnessed=True)


def test_proof_of_todays_quorum_is_accepted(witnessed: GateBench) -> None:
    policy = witnessed.root.trust.log_policy
    admitted = witnessed.admit(witnessed.statement())
    assert is_accepted(admitted.proof, policy)
    assert not is_accepted(witnessed.strip_cosignatures(admitted).proof, policy)


def test_proof_by_other_witnesses_is_not(witnessed: GateBench) -> None:
    honest, witnessed.witness_key = witnessed.witness_key, PrivateKey.generate().key
    proof = witnessed.log(b"leaf")
    witnessed.witness_key = honest
    assert not is_accepted(proof, witnessed.root.trust.log_policy)


@pytest.mark.parametrize("proof", [b"", b"garbage", b"\xff" * 300])
def test_damaged_proof_is_not_accepted(witnessed: GateBench, proof: bytes) -> None:
    assert not is_accepted(proof, witnessed.root.trust.log_policy)


def test_issued_work_without_the_new_witnesses_is_admitted_anew(
    tmp_path: Path, bench_maker: Callable[..., Any], witnessed: GateBench
) -> None:
    bench = bench_maker(tmp_path)
    workunit, _ = asyncio.run(bench.issued())
    policies = [LogPolicy(())]
    work = OutdatedWork(bench.store, lambda: Terms(log_policy=policies[-1]))
    assert work.find() == []  # control: nobody asks for witnesses
    policies.append(witnessed.root.trust.log_policy)
    assert [attempt.workunit for attempt, _ in work.find()] == [workunit]
    assert work.find() == []  # it has been told
    bench.server.pipeline._outdated = OutdatedWork(
        bench.store, lambda: Terms(log_policy=policies[-1])
    )
    bench.server.pipeline.run_once()
    bench.server.pipeline._outdated = work
    for _ in range(5):
        bench.server.pipeline.run_once()
    assert len(bench.engine.specs) == 2
