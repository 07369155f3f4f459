from dataclasses import replace
from itertools import permutations

import msgspec
import pytest

from stoilo.core.errors import TrustError, UsageError
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.metadata import open_root, role_file, signatures_of
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.ceremony.signatures import combine, sign_proposal
from tests.support.ceremony import NOW, CeremonyBench, new_key


def test_one_key_signs_what_its_role_may_and_nothing_else(bench: CeremonyBench) -> None:
    proposal = bench.request(Changes(renew=("root", "targets", "gate"))).proposal
    signed = sign_proposal(proposal, bench.keys["targets"][0])
    assert [len(signatures_of(file)) for file in signed.metadata] == [0, 1, 0]


def test_signatures_that_are_there_stay(bench: CeremonyBench) -> None:
    proposal = bench.request(Changes(renew=("root",))).proposal
    for key in bench.keys["root"]:
        proposal = sign_proposal(proposal, key)
    assert len(signatures_of(proposal.metadata[0])) == 3


def test_signing_twice_changes_nothing(bench: CeremonyBench) -> None:
    proposal = bench.request(Changes(renew=("root",))).proposal
    once = sign_proposal(proposal, bench.keys["root"][0])
    assert sign_proposal(once, bench.keys["root"][0]) == once


@pytest.mark.parametrize("role", ["root", "targets", "builder"])
def test_key_that_the_release_does_not_name_signs_nothing(
    bench: CeremonyBench, role: str
) -> None:
    proposal = bench.request(Changes(renew=("root", "targets"))).proposal
    with pytest.raises(UsageError, match="STO-K068"):
        sign_proposal(proposal, new_key(role, "mallory"))


def test_key_signs_for_the_role_it_was_made_for_only(bench: CeremonyBench) -> None:
    proposal = bench.request(Changes(renew=("targets",))).proposal
    with pytest.raises(UsageError, match="STO-K068"):
        sign_proposal(proposal, bench.keys["root"][0])


@pytest.fixture
def ceremony(bench: CeremonyBench) -> Ceremony:
    return bench.request(Changes(renew=("root", "targets")))


def copies(bench: CeremonyBench, ceremony: Ceremony) -> list[Ceremony]:
    return [
        bench.sign(
            ceremony, [bench.keys["root"][person], bench.keys["targets"][person]]
        )
        for person in range(3)
    ]


def test_order_of_copies_does_not_matter(
    bench: CeremonyBench, ceremony: Ceremony
) -> None:
    signed = copies(bench, ceremony)
    results = [combine(order) for order in permutations(signed)]
    assert all(one == results[0] for one in results)
    assert results[0] == bench.sign(ceremony)


def test_copy_of_a_copy_adds_nothing(bench: CeremonyBench, ceremony: Ceremony) -> None:
    one = copies(bench, ceremony)[0]
    assert combine([one, one, ceremony]) == one


def test_copies_of_other_proposals_are_refused(
    bench: CeremonyBench, ceremony: Ceremony
) -> None:
    other = bench.request(Changes(renew=("root", "targets")), NOW + 60)
    with pytest.raises(TrustError, match="STO-K069"):
        combine([ceremony, other])


def test_copies_with_another_description_are_refused(ceremony: Ceremony) -> None:
    about = msgspec.structs.replace(ceremony.about, note="other")
    with pytest.raises(TrustError, match="STO-K069"):
        combine([ceremony, replace(ceremony, about=about)])


def test_two_signatures_of_one_key_are_refused(
    bench: CeremonyBench, ceremony: Ceremony
) -> None:
    good = bench.sign(ceremony, bench.keys["root"][:1])
    metadata = open_root(good.proposal.metadata[0])
    for signature in metadata.signatures.values():
        signature.signature = "00" * 64
    files = (role_file("root", metadata), *good.proposal.metadata[1:])
    bad = replace(good, proposal=replace(good.proposal, metadata=files))
    with pytest.raises(TrustError, match="STO-K069"):
        combine([good, bad])


def test_evidence_of_all_copies_is_kept_and_never_two_of_a_name(
    ceremony: Ceremony,
) -> None:
    first = replace(ceremony, builds=(("a/b/00000000.json", b"1"),))
    second = replace(ceremony, builds=(("a/b/11111111.json", b"2"),))
    assert len(combine([first, second]).builds) == 2
    with pytest.raises(TrustError, match="STO-K069"):
        combine([first, replace(ceremony, builds=(("a/b/00000000.json", b"2"),))])


def test_nothing_to_combine_is_refused() -> None:
    with pytest.raises(UsageError, match="STO-K069"):
        combine([])
