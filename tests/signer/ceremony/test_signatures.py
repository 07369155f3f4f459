import pytest

from stoilo.core.errors import UsageError
from stoilo.signer.ceremony.metadata import signatures_of
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.ceremony.signatures import sign_proposal
from tests.support.ceremony import CeremonyBench, new_key


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
    with pytest.raises(UsageError, match="STO-K067"):
        sign_proposal(proposal, new_key(role, "mallory"))


def test_key_signs_for_the_role_it_was_made_for_only(bench: CeremonyBench) -> None:
    proposal = bench.request(Changes(renew=("targets",))).proposal
    with pytest.raises(UsageError, match="STO-K067"):
        sign_proposal(proposal, bench.keys["root"][0])
