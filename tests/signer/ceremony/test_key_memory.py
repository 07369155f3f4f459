from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, StoiloError, TrustError
from stoilo.signer.ceremony.base_release import open_published
from stoilo.signer.ceremony.key_memory import (
    KeyMemory,
    check_memory,
    check_project,
    memory_file,
    read_memory,
    write_memory,
)
from stoilo.signer.ceremony.proposal import Changes, Proposal
from tests.support.ceremony import NOW, CeremonyBench

KEY = "0" * 64


def targets(bench: CeremonyBench, now: int = NOW):
    return bench.request(Changes(renew=("targets",)), now).proposal.metadata[0]


def test_same_file_is_signed_again(bench: CeremonyBench) -> None:
    once = check_memory(KeyMemory(KEY, "targets"), targets(bench))
    assert check_memory(once, targets(bench)) == once
    assert once.version == 2


def test_other_file_of_the_same_version_is_refused_unless_said(
    bench: CeremonyBench,
) -> None:
    once = check_memory(KeyMemory(KEY, "targets"), targets(bench))
    other = targets(bench, NOW + 60)
    with pytest.raises(TrustError, match="STO-K066"):
        check_memory(once, other)
    assert check_memory(once, other, replace=True) != once


def test_lower_version_is_refused(bench: CeremonyBench) -> None:
    with pytest.raises(TrustError, match="STO-K066"):
        check_memory(KeyMemory(KEY, "targets", 3, "1" * 64), targets(bench))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    memory = KeyMemory(KEY, "root", 4, "1" * 64)
    file = memory_file(tmp_path / "ada.root.key")
    assert read_memory(file, KEY, "root") == KeyMemory(KEY, "root")
    write_memory(file, memory)
    assert read_memory(file, KEY, "root") == memory
    assert file.stat().st_mode & 0o077 == 0


def test_memory_of_another_key_is_refused(tmp_path: Path) -> None:
    write_memory(tmp_path / "m", KeyMemory(KEY, "root"))
    with pytest.raises(TrustError, match="STO-K050"):
        read_memory(tmp_path / "m", "1" * 64, "root")


def test_key_that_cannot_remember_signs_nothing(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="STO-K066"):
        write_memory(tmp_path / "missing" / "m", KeyMemory(KEY, "root"))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_code(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "memory"
    path.write_bytes(data)
    with pytest.raises(StoiloError, match="STO-K050"):
        read_memory(path, KEY, "root")


def met(bench: CeremonyBench) -> KeyMemory:
    """Return the memory of a targets key that signed the first release."""
    first = open_published(bench.directory)
    known = check_memory(KeyMemory(KEY, "targets"), first.targets)
    return check_project(known, Proposal(first))


def test_key_goes_on_with_its_project(bench: CeremonyBench) -> None:
    next_one = bench.request(Changes(renew=("targets",))).proposal
    assert check_project(met(bench), next_one) == met(bench)


def test_key_signs_nothing_on_the_release_of_another_root(
    bench: CeremonyBench, fresh: CeremonyBench
) -> None:
    fresh.keys = bench.keys  # the very same people, under a root that is not theirs
    fresh.directory = bench.directory.with_name("forged")
    fresh.publish(fresh.first(NOW + 1), NOW + 1)
    forged = fresh.request(Changes(renew=("targets",))).proposal
    with pytest.raises(TrustError, match="begins with another root"):
        check_project(met(bench), forged)
    check_project(met(bench), forged, replace=True)


def test_key_signs_nothing_on_another_file_of_the_version_it_signed(
    bench: CeremonyBench,
) -> None:
    other = msgspec.structs.replace(met(bench), digest="1" * 64)
    forged = bench.request(Changes(renew=("targets",))).proposal
    with pytest.raises(TrustError, match="release below has another"):
        check_project(other, forged)


def test_first_ceremony_is_where_a_key_meets_its_project(fresh: CeremonyBench) -> None:
    first = fresh.first()
    known = check_project(KeyMemory(KEY, "targets"), first.proposal)
    fresh.publish(first)
    later = fresh.request(Changes(renew=("targets",))).proposal
    assert check_project(known, later) == known
