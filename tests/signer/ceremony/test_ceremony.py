"""A whole ceremony, by three people with their own copies of a folder."""

from pathlib import Path

import pytest

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import ReviewerFile, ReviewerKey
from stoilo.executor.verifier.trust import REVIEWERS_FILE, load_trust
from stoilo.signer.ceremony.folder import read_folder, write_folder
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.requests import named_record
from stoilo.signer.ceremony.review import review
from stoilo.signer.ceremony.signatures import combine
from stoilo.signer.release_directory import read_release
from tests.support.ceremony import NOW, ORIGIN, CeremonyBench
from tests.support.gate import INSTALLED


@pytest.fixture
def bench(tmp_path: Path) -> CeremonyBench:
    return CeremonyBench(tmp_path / "release")


def test_first_release_is_what_a_volunteer_verifies(bench: CeremonyBench) -> None:
    bench.publish(bench.first())
    root = (bench.directory / "root.json").read_bytes()
    trust = load_trust(read_release(bench.directory), root, NOW, installed=INSTALLED)
    assert (trust.origin, trust.development) == (ORIGIN, False)
    assert [epoch.number for epoch in trust.epochs] == [1, 2]


def test_first_review_has_no_problem_and_names_who_is_missing(
    bench: CeremonyBench,
) -> None:
    found = review(bench.first(), NOW)
    assert found.problems == ()
    assert not found.complete
    (root,) = found.roles[0].quorums
    assert {one.name for one in root.missing} == {"ada", "ben", "cleo"}


def test_each_signs_a_copy_and_the_copies_are_combined(
    bench: CeremonyBench, tmp_path: Path
) -> None:
    bench.publish(bench.first())
    record = ReviewerFile((ReviewerKey("1" * 64, "rita"),))
    changes = Changes((named_record(REVIEWERS_FILE, record),))
    write_folder(
        tmp_path / "stick", bench.request(changes | Changes(renew=("root", "targets")))
    )
    copies = []
    for person in range(3):
        own = [keys[person] for keys in bench.keys.values() if person < len(keys)]
        signed = bench.sign(read_folder(tmp_path / "stick"), own)
        write_folder(tmp_path / f"copy{person}", signed)
        copies.append(read_folder(tmp_path / f"copy{person}"))
    together = combine(copies)
    assert review(together, NOW).complete
    assert publish(together, bench.directory, NOW).root.version == 2


def test_incomplete_ceremony_is_not_published(bench: CeremonyBench) -> None:
    signed = bench.sign(bench.first(), bench.keys["root"][:1])
    with pytest.raises(TrustError, match="STO-K068"):
        publish(signed, bench.directory, NOW)
    assert not bench.directory.exists()
