"""Every reason not to sign, each with its code; the honest ceremony beside it has none."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Key,
    Metadata,
    TargetFile,
)

from stoilo.core.errors import TrustError, UsageError
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.key_holders import KeyHolder, tuf_key
from stoilo.signer.ceremony.metadata import open_root, open_targets, role_file
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.requests import raise_floors, take_online_keys
from stoilo.signer.ceremony.review import review
from tests.support.ceremony import DAY_S, NOW, CeremonyBench, new_key

ALL = ("root", "targets", "gate", "policy", "reviewers", "revocation")


def honest(bench: CeremonyBench) -> Ceremony:
    """Renews everything, one day after the first release."""
    return bench.request(Changes(renew=ALL), NOW + DAY_S)


def codes(ceremony: Ceremony, now: int = NOW + DAY_S) -> set[str]:
    return {one.code for one in review(ceremony, now).problems}


def with_role(ceremony: Ceremony, role: str, change: Callable[[Any], None]) -> Ceremony:
    """Return the ceremony with one role's signed part changed, unsigned."""
    files = []
    for file in ceremony.proposal.metadata:
        metadata = open_root(file) if file.role == "root" else open_targets(file)
        if file.role == role:
            change(metadata.signed)
            metadata = Metadata(metadata.signed)
        files.append(role_file(file.role, metadata))
    proposal = replace(ceremony.proposal, metadata=tuple(files))
    return replace(ceremony, proposal=proposal)


def with_target(ceremony: Ceremony, name: str, data: bytes) -> Ceremony:
    """Return the ceremony with other bytes under target `name`."""
    one = NewTarget.of(name, data)
    role = name.split("/", maxsplit=1)[0]
    role = role if role in ALL else "targets"

    def put(signed: Any) -> None:
        signed.targets[name] = TargetFile(one.size, {"sha256": one.digest}, name)

    changed = with_role(ceremony, role, put)
    kept = tuple(old for old in changed.proposal.targets if old.name != name)
    proposal = replace(changed.proposal, targets=(*kept, one))
    return replace(changed, proposal=proposal)


def edited(bench: CeremonyBench, name: str, **fields: object) -> Ceremony:
    """Return the honest ceremony with fields of one JSON target changed."""
    ceremony = honest(bench)
    document = json.loads(ceremony.proposal.target(name) or b"{}")
    return with_target(ceremony, name, json.dumps(document | fields).encode())


def about(ceremony: Ceremony, **fields: object) -> Ceremony:
    return replace(ceremony, about=msgspec.structs.replace(ceremony.about, **fields))


def test_honest_ceremony_has_no_problem(bench: CeremonyBench) -> None:
    found = review(honest(bench), NOW + DAY_S)
    assert found.problems == ()
    assert not found.complete
    assert review(bench.sign(honest(bench)), NOW + DAY_S).complete


def skip(signed: Any) -> None:
    signed.version += 1


def back(signed: Any) -> None:
    signed.version -= 1


def too_long(signed: Any) -> None:
    signed.expires += timedelta(days=2)


def over(signed: Any) -> None:
    signed.expires -= timedelta(days=400)


def mark(name: str) -> Callable[[Any], None]:
    return lambda signed: signed.unrecognized_fields.update({name: True})


def low_threshold(signed: Any) -> None:
    signed.roles["root"].threshold = 1


def wide(signed: Any) -> None:
    signed.delegations.roles["gate"].paths = ["*"]


def passing_on(signed: Any) -> None:
    signed.delegations.roles["gate"].terminating = False


def without_policy(signed: Any) -> None:
    del signed.targets["log/policy.txt"]


def not_by_digest(signed: Any) -> None:
    signed.consistent_snapshot = False


def hidden_key(signed: Any) -> None:
    spare = KeyHolder("mallory", new_key("root", "mallory").ed25519().public)
    signed.keys[tuf_key(spare).keyid] = tuf_key(spare)


def hidden_delegate(signed: Any) -> None:
    hidden_key(signed.delegations)


def nested(signed: Any) -> None:
    key = tuf_key(KeyHolder("mallory", new_key("gate", "mallory").ed25519().public))
    row = DelegatedRole("helper", [key.keyid], 1, terminating=True, paths=["gate/*"])
    signed.delegations = Delegations({key.keyid: key}, {"helper": row})


def named(name: str) -> Callable[[Any], None]:
    """Return what puts a key of mallory's in cleo's place, under another name."""
    key = tuf_key(KeyHolder("mallory", new_key("root", "mallory").ed25519().public))

    def change(signed: Any) -> None:
        signed.revoke_key(signed.roles["root"].keyids[-1], "root")
        document = key.to_dict() | {"x-stoilo-name": name}
        signed.add_key(Key.from_dict(key.keyid, document), "root")

    return change


FORGED = {
    "two of one name": ("root", named("Ada"), "STO-K053"),
    "root key of no role": ("root", hidden_key, "STO-K063"),
    "delegated key of no role": ("targets", hidden_delegate, "STO-K063"),
    "delegated role that delegates": ("gate", nested, "STO-K063"),
    "version skipped": ("targets", skip, "STO-K052"),
    "version repeated": ("targets", back, "STO-K052"),
    "root skipped": ("root", skip, "STO-K052"),
    "lives too long": ("root", too_long, "STO-K058"),
    "has ended already": ("targets", over, "STO-K058"),
    "development root": ("root", mark("x-stoilo-development"), "STO-K063"),
    "rehearsal of a real root": ("root", mark("x-stoilo-rehearsal"), "STO-K063"),
    "unknown mark": ("root", mark("x-other"), "STO-K063"),
    "one signature is enough": ("root", low_threshold, "STO-K053"),
    "delegation beyond its paths": ("targets", wide, "STO-K063"),
    "delegation that goes on": ("targets", passing_on, "STO-K063"),
    "a list left out": ("targets", without_policy, "STO-K063"),
    "files not by digest": ("root", not_by_digest, "STO-K050"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_metadata_is_refused(bench: CeremonyBench, name: str) -> None:
    role, change, code = FORGED[name]
    assert code in codes(with_role(honest(bench), role, change))


CONTENT: dict[str, tuple[str, dict[str, object], str]] = {
    "another project": ("project.json", {"origin": "other.example/log"}, "STO-K063"),
    "no language layer": ("project.json", {"languages": []}, "STO-K063"),
    "unknown field": ("project.json", {"extra": 1}, "STO-K063"),
    "epoch without its file": ("gate/epochs.json", {"epochs": [1, 2, 3]}, "STO-K063"),
    "epoch changed": ("gate/1.json", {"max_per_minute": 9}, "STO-K063"),
    "epoch of small order": ("gate/2.json", {"keys": ["0" * 64]}, "STO-K001"),
    "reviewer without a key": (
        "reviewers/keys.json",
        {"keys": [{"key": "x"}]},
        "STO-K063",
    ),
    "floor that falls": ("executor/floors.json", {"verifier": 0}, "STO-K063"),
    "more builders than there are": (
        "builders/keys.json",
        {"threshold": 3},
        "STO-K053",
    ),
}


@pytest.mark.parametrize("name", CONTENT)
def test_wrong_content_is_refused(bench: CeremonyBench, name: str) -> None:
    target, fields, code = CONTENT[name]
    assert code in codes(edited(bench, target, **fields))


def test_same_content_written_again_is_fine(bench: CeremonyBench) -> None:
    assert codes(edited(bench, "project.json")) == set()


def test_log_policy_of_another_log_is_refused(bench: CeremonyBench) -> None:
    policy = honest(bench).proposal.target("log/policy.txt") or b""
    other = policy.replace(b"project.example/log", b"another.example/log")
    assert codes(with_target(honest(bench), "log/policy.txt", other))


def test_targets_that_name_what_is_delegated_are_refused(bench: CeremonyBench) -> None:
    def put(signed: Any) -> None:
        signed.targets["gate/9.json"] = TargetFile(
            1, {"sha256": "0" * 64}, "gate/9.json"
        )

    assert "STO-K063" in codes(with_role(honest(bench), "targets", put))


@pytest.mark.parametrize("name", ["\u0430da", "ada [0011 2233]", "ada, ben", " "])
def test_name_that_looks_like_anothers_is_refused(
    bench: CeremonyBench, name: str
) -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        review(with_role(honest(bench), "root", named(name)), NOW + DAY_S)


def test_builders_of_one_name_are_refused(bench: CeremonyBench) -> None:
    keys = [
        {"key": new_key("builder", "bea").public.key, "name": name}
        for name in ("bea", "Bea")
    ]
    assert "STO-K053" in codes(edited(bench, "builders/keys.json", keys=keys))


def test_key_under_another_id_is_refused(bench: CeremonyBench) -> None:
    def rename(signed: Any) -> None:
        key = signed.roles["root"].keyids[0]
        signed.roles["root"].keyids[0] = "0" * 64
        document = signed.keys.pop(key).to_dict()
        signed.keys["0" * 64] = Key.from_dict("0" * 64, document)

    with pytest.raises(TrustError, match="STO-K050"):
        review(with_role(honest(bench), "root", rename), NOW + DAY_S)


def test_floor_never_goes_back(bench: CeremonyBench) -> None:
    raised = bench.request(Changes())
    bench.publish(
        bench.request(raise_floors(raised.proposal, {"verifier": 5, "pure": 2}))
    )
    assert "STO-K063" in codes(edited(bench, "executor/floors.json", verifier=4))
    assert "STO-K063" in codes(edited(bench, "executor/floors.json", serials={}))
    assert codes(edited(bench, "executor/floors.json", verifier=6)) == set()


def test_lowest_epoch_never_goes_back(bench: CeremonyBench) -> None:
    document = json.loads(
        honest(bench).proposal.target("revocation/denied.json") or b""
    )
    higher = json.dumps(document | {"min_epoch": 2}).encode()
    one = NewTarget.of("revocation/denied.json", higher)
    bench.publish(bench.request(Changes(put=(one,))))
    assert "STO-K063" in codes(edited(bench, "revocation/denied.json", min_epoch=1))


def test_base_that_had_expired_is_refused_unless_said(bench: CeremonyBench) -> None:
    late = bench.request(Changes(renew=ALL), NOW + 8 * DAY_S)
    assert codes(late, NOW + 8 * DAY_S) == {"STO-K052"}
    assert codes(about(late, renews_expired=True), NOW + 8 * DAY_S) == set()
    said = review(about(late, renews_expired=True), NOW + 8 * DAY_S)
    assert any("expired" in warning for warning in said.warnings)


@pytest.mark.parametrize(
    ("now", "fine"), [(2, False), (NOW + DAY_S, True), (NOW + 32 * DAY_S, False)]
)
def test_clock_and_age_of_a_proposal_are_looked_at(
    bench: CeremonyBench, now: int, fine: bool
) -> None:
    assert ("STO-K058" not in codes(honest(bench), now)) is fine


def test_folder_and_root_must_agree_about_a_rehearsal(bench: CeremonyBench) -> None:
    assert "STO-K063" in codes(about(honest(bench), rehearsal=True))


def test_base_must_be_the_one_it_was_made_for(bench: CeremonyBench) -> None:
    assert "STO-K052" in codes(about(honest(bench), base="0" * 64))


def test_empty_proposal_is_refused(bench: CeremonyBench) -> None:
    assert codes(bench.request(Changes())) == {"STO-K068"}


def test_first_release_needs_every_role(fresh: CeremonyBench) -> None:
    ceremony = fresh.first()
    kept = tuple(file for file in ceremony.proposal.metadata if file.role != "policy")
    proposal = replace(ceremony.proposal, metadata=kept)
    assert "STO-K068" in codes(replace(ceremony, proposal=proposal), NOW)


def test_signature_of_a_stranger_is_refused(bench: CeremonyBench) -> None:
    def add_stranger(file: Any) -> Any:
        metadata = open_targets(file)
        metadata.sign(new_key("targets", "mallory").signer(), append=True)
        return role_file(file.role, metadata)

    ceremony = honest(bench)
    files = tuple(
        add_stranger(file) if file.role == "targets" else file
        for file in ceremony.proposal.metadata
    )
    forged = replace(ceremony, proposal=replace(ceremony.proposal, metadata=files))
    assert codes(forged) == {"STO-K050"}


def test_signature_over_other_bytes_is_refused(bench: CeremonyBench) -> None:
    ceremony = honest(bench)
    signed = bench.sign(ceremony)
    moved = bench.request(Changes(renew=ALL), NOW + DAY_S + 60)
    files = []
    for old, new in zip(signed.proposal.metadata, moved.proposal.metadata, strict=True):
        metadata = open_root(new) if new.role == "root" else open_targets(new)
        source = open_root(old) if old.role == "root" else open_targets(old)
        metadata.signatures = source.signatures
        files.append(role_file(new.role, metadata))
    forged = replace(moved, proposal=replace(moved.proposal, metadata=tuple(files)))
    assert "STO-K050" in codes(forged, NOW + DAY_S + 60)
    assert not review(forged, NOW + DAY_S + 60).complete


def test_one_person_signing_with_one_key_is_not_two(bench: CeremonyBench) -> None:
    only = bench.sign(honest(bench), [bench.keys["root"][0], bench.keys["targets"][0]])
    with pytest.raises(TrustError, match="STO-K068"):
        publish(only, bench.directory, NOW + DAY_S)


def test_role_that_depends_on_changed_keys_must_be_signed_anew(
    bench: CeremonyBench,
) -> None:
    dora = new_key("gate", "dora")

    def swap(signed: Any) -> None:
        signed.revoke_key(bench.keys["gate"][0].signer().public_key.keyid, "gate")
        signed.add_key(dora.signer().public_key, "gate")

    ceremony = bench.request(Changes(renew=("targets",)), NOW + DAY_S)
    assert "STO-K068" in codes(with_role(ceremony, "targets", swap))


def test_epochs_of_the_server_are_certified(bench: CeremonyBench) -> None:
    online = bench.online()
    fewer = msgspec.structs.replace(online, epochs=online.epochs[1:])
    ceremony = bench.request(take_online_keys(bench.request(Changes()).proposal, fewer))
    assert codes(ceremony, NOW) == set()
    assert ceremony.proposal.target("gate/1.json") is None
    other = msgspec.structs.replace(online, origin="other.example/log")
    with pytest.raises(UsageError, match="STO-K063"):
        take_online_keys(ceremony.proposal, other)
