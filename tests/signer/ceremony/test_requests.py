import msgspec
import pytest

from stoilo.audit.format.note import KeyType, private_vkey, render_vkey
from stoilo.audit.format.policy import parse_policy
from stoilo.audit.witness.client import NO_WITNESSES
from stoilo.core.digests import Digest
from stoilo.core.errors import UsageError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import (
    BuilderKey,
    InstalledRelease,
    PolicyFile,
    ProjectFile,
    RevocationFile,
    read_target,
)
from stoilo.executor.verifier.trust import HISTORY_FILE, POLICY_FILE, load_trust
from stoilo.policies.policy import default_policy
from stoilo.signer.ceremony.proposal import Changes, Proposal
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.requests import (
    accept_policies,
    allow_again,
    change_builders,
    raise_floors,
    take_levels,
    take_log_policy,
    take_online_keys,
    withdraw,
)
from stoilo.signer.release_pack import read_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.ceremony import NOW, ORIGIN, CeremonyBench, new_key
from tests.support.gate import INSTALLED, small_level


def base(bench: CeremonyBench) -> Proposal:
    return bench.request(Changes()).proposal


def denied(proposal: Proposal) -> RevocationFile:
    name = "revocation/denied.json"
    return read_target(proposal.target(name) or b"", RevocationFile, name)


def test_newer_level_stands_first_and_the_older_stays(bench: CeremonyBench) -> None:
    level = msgspec.structs.replace(small_level("pure", 0), digest=Digest("3" * 64))
    newer = InstalledRelease((level,), "2" * 64)
    proposal = bench.request(take_levels(base(bench), newer, {})).proposal
    project = read_target(proposal.target("project.json") or b"", ProjectFile, "p")
    assert len(project.levels["pure"]) == 2
    assert project.levels["pure"][0] == newer.levels[0].digest
    assert project.languages == ("2" * 64, INSTALLED.language_digest)


def test_only_so_many_older_levels_stay(bench: CeremonyBench) -> None:
    for number in range(6):
        newer = InstalledRelease((small_level("pure", number),), f"{number}" * 64)
        bench.publish(bench.request(take_levels(base(bench), newer, {})))
    project = base(bench).target("project.json") or b""
    assert len(read_target(project, ProjectFile, "p").languages) == 4


def test_stolen_online_key_is_replaced_and_what_it_signed_counts_no_more(
    bench: CeremonyBench,
) -> None:
    root = (bench.directory / "root.json").read_bytes()
    fresh = PrivateKey.generate()
    online = msgspec.structs.replace(bench.online(), online=fresh.public.raw.hex())
    ceremony = bench.request(take_online_keys(base(bench), online))
    assert [file.role for file in ceremony.proposal.metadata] == ["root"]
    publish(bench.sign(ceremony), bench.directory, NOW)
    refresh_online_metadata(bench.directory, fresh, NOW)
    files = read_release(bench.directory)
    assert load_trust(files, root, NOW, installed=INSTALLED).root_version == 2


def test_new_revocation_key_takes_the_place_of_the_old(bench: CeremonyBench) -> None:
    online = msgspec.structs.replace(
        bench.online(), revocation=PrivateKey.generate().public.raw.hex()
    )
    ceremony = bench.request(take_online_keys(base(bench), online))
    assert denied(ceremony.proposal).keys == (online.revocation,)


def test_other_log_key_leaves_the_old_policy_in_the_history(
    bench: CeremonyBench,
) -> None:
    key = PrivateKey.generate().key
    vkey = render_vkey(private_vkey(ORIGIN, KeyType.ED25519, key))
    changes = take_log_policy(base(bench), NO_WITNESSES, vkey, now=NOW, size=10)
    proposal = bench.request(changes).proposal
    assert proposal.target(HISTORY_FILE)
    old = parse_policy(base(bench).target(POLICY_FILE) or b"")
    assert parse_policy(proposal.target(POLICY_FILE) or b"").logs != old.logs


def test_same_log_policy_changes_nothing(bench: CeremonyBench) -> None:
    changes = take_log_policy(base(bench), NO_WITNESSES, "", now=NOW, size=10)
    assert bench.request(changes).proposal.metadata == ()


def test_dropped_policy_is_no_longer_accepted(bench: CeremonyBench) -> None:
    digest = default_policy().digest
    proposal = bench.request(accept_policies(base(bench), (), [digest])).proposal
    name = "policy/accepted.json"
    assert read_target(proposal.target(name) or b"", PolicyFile, name).digests == ()


def test_builders_come_and_go(bench: CeremonyBench) -> None:
    old, new = bench.builders[0].ed25519().public, new_key("builder", "cleo")
    entry = BuilderKey(new.ed25519().public.raw.hex(), "cleo")
    changes = change_builders(base(bench), [entry], [old], None)
    assert b"cleo" in (
        bench.request(changes).proposal.target("builders/keys.json") or b""
    )
    with pytest.raises(UsageError, match="STO-K054"):
        change_builders(base(bench), (), [PrivateKey.generate().public], None)


def test_floors_are_raised_part_by_part(bench: CeremonyBench) -> None:
    first = bench.request(raise_floors(base(bench), {"pure": 2})).proposal
    second = raise_floors(first, {"verifier": 3})
    assert second.put[0].content == b'{"verifier":3,"serials":{"pure":2}}'


def test_what_is_withdrawn_twice_stands_once_and_can_be_allowed(
    bench: CeremonyBench,
) -> None:
    made = RevocationFile(digests=("1" * 64,), epochs=(2,), min_epoch=2)
    once = bench.request(withdraw(base(bench), made)).proposal
    assert withdraw(once, made).put[0].content == once.target("revocation/denied.json")
    back = allow_again(once, RevocationFile(epochs=(2,)))
    left = read_target(back.put[0].content, RevocationFile, "r")  # type: ignore[arg-type]
    assert (left.epochs, left.digests, left.min_epoch) == ((), ("1" * 64,), 2)
    with pytest.raises(UsageError, match="STO-K054"):
        allow_again(base(bench), made)


def test_online_statements_are_settled_and_never_unsettled(
    bench: CeremonyBench,
) -> None:
    settled = bench.request(withdraw(base(bench), RevocationFile(), settle=9)).proposal
    again = withdraw(settled, RevocationFile(), settle=3)
    assert read_target(again.put[0].content, RevocationFile, "r").settled == 9  # type: ignore[arg-type]
