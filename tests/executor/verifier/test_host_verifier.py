"""What a host has learnt only rises, over restarts too; damaged, it refuses all work."""

import dataclasses
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.verifier import host_verifier
from stoilo.executor.verifier.host_verifier import MEMORY_FILE, HostMemory
from stoilo.executor.verifier.targets import Floors, FloorsFile, TrustedRelease
from tests.support.gate import NOW, GateBench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / MEMORY_FILE


def released(gate: GateBench, **changes: object) -> TrustedRelease:
    return dataclasses.replace(gate.root.trust, **changes)  # type: ignore[arg-type] - by name


def test_newest_time_survives_and_only_rises(path: Path) -> None:
    memory = HostMemory(path)
    seen = []
    for time in (None, 5, 3, 9, 0, 9):
        memory.learn_time(time)
        seen.append((memory.known.newest_time, HostMemory(path).known.newest_time))
    assert seen == [(0, 0), (5, 5), (5, 5), (9, 9), (9, 9), (9, 9)]


def test_release_raises_and_a_lower_one_does_not_lower(
    gate: GateBench, path: Path
) -> None:
    memory = HostMemory(path)
    high = FloorsFile(verifier=5, serials={"pure": 3})
    memory.learn_release(released(gate, floors=high, targets_version=9))
    memory.learn_release(released(gate, floors=FloorsFile(), targets_version=2))
    again = HostMemory(path, Floors(targets=4)).known.floors
    assert again.serials == {"pure": 3, "verifier": 5}
    assert again.targets == 9
    assert HostMemory(path, Floors(targets=40)).known.floors.targets == 40


def test_offline_revocations_are_remembered_without_the_releases_cache(
    gate: GateBench, path: Path
) -> None:
    HostMemory(path).learn_release(released(gate, revocation_version=2))
    assert HostMemory(path).known.floors.revocation == 2


def test_version_beyond_all_bounds_does_not_damage_the_memory(
    gate: GateBench, path: Path
) -> None:
    HostMemory(path).learn_release(released(gate, revocation_version=2**70))
    assert HostMemory(path).known.floors.revocation == 2**53


def test_what_another_verifier_learnt_counts_and_stays(
    gate: GateBench, path: Path
) -> None:
    one, other = HostMemory(path), HostMemory(path)
    one.learn_release(released(gate, floors=FloorsFile(verifier=7)))
    one.learn_time(9)
    assert other.recall().newest_time == 9
    other.learn_release(released(gate, floors=FloorsFile(serials={"pure": 2})))
    assert HostMemory(path).known.floors.serial("verifier") == 7
    assert HostMemory(path).known.newest_time == 9


def test_newest_statement_survives_a_restart(gate: GateBench, path: Path) -> None:
    trust = gate.root.trust
    HostMemory(path).learn_revocations(
        gate.revoke_online(sequence=5, epochs=(9,)), trust
    )
    with pytest.raises(TrustError, match="STO-A076"):
        HostMemory(path).learn_revocations(gate.revoke_online(sequence=6), trust)


def test_older_statement_does_not_replace_a_newer_one(
    gate: GateBench, path: Path
) -> None:
    trust = gate.root.trust
    memory = HostMemory(path)
    memory.learn_revocations(gate.revoke_online(sequence=5, time=NOW + 9), trust)
    for one in (memory, HostMemory(path)):
        one.learn_revocations(gate.revocations, trust)
        assert one.known.revocations is not None
        assert one.known.revocations.statement.sequence == 5


def test_forged_statement_is_not_remembered(gate: GateBench, path: Path) -> None:
    forged = gate.revoke_online(sequence=9, keys=(gate.gate_key(),))
    with pytest.raises(TrustError, match="STO-A071"):
        HostMemory(path).learn_revocations(forged, gate.root.trust)
    assert not path.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\xff" * 40,
        b'{"format":"stoilo-memory/2"}',
        b'{"format":"stoilo-memory/1","newest_time":-1}',
        b'{"format":"stoilo-memory/1","floors":{"root":"2"}}',
        b'{"format":"stoilo-memory/1","unknown":1}',
    ],
)
def test_damaged_memory_refuses_and_names_its_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(InternalError, match="STO-F040") as caught:
        HostMemory(path)
    assert MEMORY_FILE in (caught.value.hint or "")
    assert str(path.parent) not in str(caught.value)  # it is told to the project


def test_crash_before_the_rename_leaves_what_was_known(path: Path) -> None:
    HostMemory(path).learn_time(7)
    path.with_name(f".{MEMORY_FILE}.new").write_bytes(b'{"newest_time":9')
    assert HostMemory(path).known.newest_time == 7


def test_what_cannot_be_written_is_not_believed(
    gate: GateBench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InternalError("STO-X008", "the disk is full")

    monkeypatch.setattr(host_verifier, "replace_file", fail)
    memory = HostMemory(path)
    for _ in range(2):  # the second time, too: nothing was taken for known
        with pytest.raises(InternalError, match="STO-X008"):
            memory.learn_revocations(gate.revocations, gate.root.trust)
        with pytest.raises(InternalError, match="STO-X008"):
            memory.learn_time(5)
    assert memory.known.newest_time == 0
