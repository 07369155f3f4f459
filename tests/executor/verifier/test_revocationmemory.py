from pathlib import Path

import pytest

from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.verifier import host_verifier as revocationmemory
from stoilo.executor.verifier.host_verifier import RevocationMemory
from tests.support.gate import NOW, GateBench


def test_newest_statement_survives_a_restart(tmp_path: Path, gate: GateBench) -> None:
    path, trust = tmp_path / "revocations.json", gate.root.trust
    RevocationMemory(path).learn(gate.revoke_online(sequence=5, epochs=(9,)), trust)
    with pytest.raises(TrustError, match="STO-A077"):
        RevocationMemory(path).learn(gate.revoke_online(sequence=6), trust)


def test_older_statement_does_not_replace_a_newer_one(
    tmp_path: Path, gate: GateBench
) -> None:
    path, trust = tmp_path / "revocations.json", gate.root.trust
    memory = RevocationMemory(path)
    memory.learn(gate.revoke_online(sequence=5, time=NOW + 9), trust)
    assert memory.learn(gate.revocations, trust).statement.sequence == 5
    assert RevocationMemory(path).learn(gate.revocations, trust).statement.sequence == 5


def test_forged_statement_is_not_remembered(tmp_path: Path, gate: GateBench) -> None:
    path, trust = tmp_path / "revocations.json", gate.root.trust
    with pytest.raises(TrustError, match="STO-A072"):
        RevocationMemory(path).learn(
            gate.revoke_online(sequence=9, keys=(gate.gate_key(),)), trust
        )
    assert not path.exists()


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff" * 40])
def test_damaged_memory_refuses(tmp_path: Path, gate: GateBench, damage: bytes) -> None:
    path = tmp_path / "revocations.json"
    path.write_bytes(damage)
    with pytest.raises(InternalError, match="STO-A082"):
        RevocationMemory(path).learn(gate.revocations, gate.root.trust)


def test_statement_is_durable_before_it_is_believed(
    tmp_path: Path, gate: GateBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InternalError("STO-X008", "the disk is full")

    monkeypatch.setattr(revocationmemory, "replace_file", fail)
    memory = RevocationMemory(tmp_path / "revocations.json")
    for _ in range(2):
        with pytest.raises(InternalError, match="STO-X008"):
            memory.learn(gate.revocations, gate.root.trust)
