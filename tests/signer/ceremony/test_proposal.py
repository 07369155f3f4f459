from itertools import permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.executor.verifier.trust import FLOORS_FILE
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleChange
from stoilo.signer.ceremony.metadata import open_root, open_targets
from stoilo.signer.ceremony.proposal import Changes, NewTarget, Proposal, amend_proposal
from stoilo.signer.ceremony.requests import raise_floors
from stoilo.signer.ceremony.signatures import sign_proposal
from tests.support.ceremony import DAY_S, NOW, CeremonyBench, new_key


def roles_of(proposal: Proposal) -> list[str]:
    return [file.role for file in proposal.metadata]


def holder(key) -> KeyHolder:
    return KeyHolder(key.name, key.ed25519().public)


def test_only_the_role_that_changes_is_proposed(bench: CeremonyBench) -> None:
    ceremony = bench.request(Changes(put=(NewTarget.of("levels/x.toml", b"x"),)))
    assert roles_of(ceremony.proposal) == ["targets"]
    assert ceremony.proposal.metadata[0].version == 2


def test_nothing_is_proposed_when_nothing_changes(bench: CeremonyBench) -> None:
    floors = bench.request(Changes()).proposal.target(FLOORS_FILE) or b""
    same = bench.request(Changes(put=(NewTarget.of(FLOORS_FILE, floors),)))
    assert same.proposal.metadata == ()


def test_new_metadata_has_a_whole_life(bench: CeremonyBench) -> None:
    ceremony = bench.request(Changes(renew=("targets",)), NOW + 5 * DAY_S)
    expires = open_targets(ceremony.proposal.metadata[0]).signed.expires
    assert int(expires.timestamp()) == NOW + (5 + 180) * DAY_S


def test_targets_with_new_keys_are_signed_anew_with_the_root(
    bench: CeremonyBench,
) -> None:
    change = RoleChange("targets", add=(holder(new_key("targets", "dora")),))
    ceremony = bench.request(Changes(keys=(change,)))
    assert roles_of(ceremony.proposal) == ["root", "targets"]


def test_delegated_role_with_new_keys_is_signed_anew_with_targets(
    bench: CeremonyBench,
) -> None:
    change = RoleChange("gate", add=(holder(new_key("gate", "dora")),))
    assert roles_of(bench.request(Changes(keys=(change,))).proposal) == [
        "targets",
        "gate",
    ]


def test_several_keys_and_the_threshold_change_at_once(bench: CeremonyBench) -> None:
    out = tuple(holder(key) for key in bench.keys["root"][:2])
    add = tuple(holder(new_key("root", name)) for name in ("dora", "emil", "fay"))
    ceremony = bench.request(Changes(keys=(RoleChange("root", out, add, 3),)))
    root = open_root(ceremony.proposal.metadata[0]).signed
    assert (root.roles["root"].threshold, len(root.roles["root"].keyids)) == (3, 4)


@pytest.mark.parametrize(
    ("role", "leaving", "threshold"),
    [("root", 1, None), ("targets", 0, 1), ("targets", 0, 4), ("gate", 1, None)],
    ids=["too few keys", "threshold too low", "more than keys", "nobody left"],
)
def test_keys_that_do_not_add_up_are_refused(
    bench: CeremonyBench, role: str, leaving: int, threshold: int | None
) -> None:
    out = tuple(holder(key) for key in bench.keys[role][:leaving])
    with pytest.raises(UsageError, match="STO-K053"):
        bench.request(Changes(keys=(RoleChange(role, out, (), threshold),)))


def test_key_of_another_role_is_refused(bench: CeremonyBench) -> None:
    taken = holder(bench.keys["gate"][0])
    with pytest.raises(UsageError, match="STO-K053"):
        bench.request(Changes(keys=(RoleChange("policy", add=(taken,)),)))


def test_online_key_as_an_offline_one_is_refused(bench: CeremonyBench) -> None:
    taken = KeyHolder("server", bench.online_key.public)
    with pytest.raises(UsageError, match="STO-K053"):
        bench.request(Changes(keys=(RoleChange("gate", add=(taken,)),)))


def test_what_is_not_there_cannot_leave(bench: CeremonyBench) -> None:
    stranger = holder(new_key("root", "mallory"))
    for changes in (
        Changes(keys=(RoleChange("root", out=(stranger,)),)),
        Changes(drop=("levels/none.toml",)),
        Changes(renew=("snapshot",)),
        Changes(keys=(RoleChange("nobody", add=(stranger,)),)),
    ):
        with pytest.raises(UsageError, match="STO-K054"):
            bench.request(changes)


def test_more_is_asked_for_until_somebody_signs(bench: CeremonyBench) -> None:
    ceremony = bench.request(Changes(renew=("policy",)))
    more = raise_floors(ceremony.proposal, {"verifier": 3})
    amended = amend_proposal(ceremony.proposal, more, NOW)
    assert roles_of(amended) == ["targets", "policy"]
    assert [file.version for file in amended.metadata] == [2, 2]
    signed = sign_proposal(amended, bench.keys["policy"][0])
    with pytest.raises(UsageError, match="STO-K054"):
        amend_proposal(signed, more, NOW)


def test_target_that_is_replaced_twice_is_carried_once(bench: CeremonyBench) -> None:
    first = bench.request(Changes(put=(NewTarget.of("levels/x.toml", b"1"),))).proposal
    second = amend_proposal(
        first, Changes(put=(NewTarget.of("levels/x.toml", b"2"),)), NOW
    )
    assert [one.content for one in second.targets] == [b"2"]
    gone = amend_proposal(second, Changes(drop=("levels/x.toml",)), NOW)
    assert gone.targets == ()


ORDERS = list(permutations(range(3)))


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(order=st.sampled_from(ORDERS), other=st.sampled_from(ORDERS))
def test_order_of_signing_does_not_matter(
    bench: CeremonyBench, order: tuple[int, ...], other: tuple[int, ...]
) -> None:
    proposal = bench.request(Changes(renew=("root", "targets"))).proposal

    def signed(sequence: tuple[int, ...]) -> Proposal:
        result = proposal
        for person in sequence:
            for role in ("targets", "root"):
                result = sign_proposal(result, bench.keys[role][person])
        return result

    assert signed(order) == signed(other)
    assert signed(order).digest == proposal.digest
