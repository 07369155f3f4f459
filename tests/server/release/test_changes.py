from __future__ import annotations

from dataclasses import replace

import pytest

from stoilo.audit.format.facts import KeyRecord, LevelRecord, PolicyRecord, Record
from stoilo.server.release.changes import (
    Standing,
    facts_in_force,
    find_changes,
    note_changes,
    revoked_keys,
)
from stoilo.signer.release_directory import read_release
from tests.support.gate import NOW, GateBench
from tests.support.serverbench import Bench

ROLES = {"root", "targets", "snapshot", "timestamp", "gate", "log", "reviewer"}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> GateBench:
    return GateBench(tmp_path_factory.mktemp("root"))


def standing(gate: GateBench, now: int = NOW, policy: str = "a" * 64) -> Standing:
    files = read_release(gate.root.directory)
    trust = gate.root.trust
    levels = gate.installed.levels
    return facts_in_force(trust, files, now, policy_digest=policy, levels=levels)


def changes(before: Standing, after: Standing, now: int = NOW) -> list[Record | None]:
    return [event.record for event in find_changes(before, after, now)]


def test_keys_of_every_role_are_born_at_the_first_start(gate: GateBench) -> None:
    born = [one for one in changes({}, standing(gate)) if isinstance(one, KeyRecord)]
    assert {one.role for one in born} >= ROLES
    assert {one.event for one in born} == {"born"}
    assert all(one.file for one in born)


def test_key_whose_window_is_over_has_ended(gate: GateBench) -> None:
    before = standing(gate)
    later = max(one.not_after for one in before.values() if isinstance(one, KeyRecord))
    died = changes(before, standing(gate, later), later)
    assert {one.role for one in died if isinstance(one, KeyRecord)} == {"gate"}
    assert {one.reason for one in died if isinstance(one, KeyRecord)} == {"ended"}


def test_revoked_epoch_s_key_has_died_by_revocation(gate: GateBench) -> None:
    trust = replace(gate.root.trust, revoked_epochs=frozenset({1}))
    files, before = read_release(gate.root.directory), standing(gate)
    after = facts_in_force(trust, files, NOW, policy_digest="a" * 64)
    events = find_changes(before, after, NOW, revoked_keys(trust))
    died = [one.record for one in events if isinstance(one.record, KeyRecord)]
    assert [(one.role, one.event, one.reason) for one in died] == [
        ("gate", "died", "revoked")
    ]


def test_withdrawn_reviewer_is_a_death(gate: GateBench) -> None:
    before, after = standing(gate), standing(gate)
    (subject,) = (one for one in after if one.startswith("key:reviewer:"))
    del after[subject]
    (died,) = changes(before, after)
    assert isinstance(died, KeyRecord)
    assert (died.event, died.reason) == ("died", "removed")


def test_new_policy_names_the_one_before_it(gate: GateBench) -> None:
    after = standing(gate, policy="b" * 64)
    (record,) = changes(standing(gate), after)
    assert isinstance(record, PolicyRecord)
    assert (record.digest, record.previous) == ("b" * 64, "a" * 64)


def test_changed_level_names_the_one_before_it(gate: GateBench) -> None:
    before, after = standing(gate), standing(gate)
    (record,) = changes(replace_level(before, "c" * 64), after)
    assert isinstance(record, LevelRecord)
    assert (record.name, record.previous) == ("pure", "c" * 64)


def replace_level(facts: Standing, digest: str) -> Standing:
    level = facts["level:pure"]
    assert isinstance(level, LevelRecord)
    return facts | {
        "level:pure": LevelRecord(level.origin, level.time, "in_force", "pure", digest)
    }


def test_what_was_noted_is_not_noted_at_the_next_start(
    bench: Bench, gate: GateBench
) -> None:
    facts = standing(gate)
    assert note_changes(bench.store, facts, NOW) == len(facts)
    assert note_changes(bench.store, facts, NOW + 5) == 0
    assert note_changes(bench.store, standing(gate, policy="b" * 64), NOW + 9) == 1


def test_every_change_becomes_a_leaf(bench: Bench, gate: GateBench) -> None:
    facts = standing(gate)
    note_changes(bench.store, facts, NOW)
    bench.server.leaves.append_all(bench.log)
    noted = [kind for kind in bench.kinds() if kind in {"key", "policy", "level"}]
    assert len(noted) == len(facts)
