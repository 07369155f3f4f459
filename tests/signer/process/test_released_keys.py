"""Released projects: their directory never holds, makes or needs an offline key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError, StoiloError, UsageError
from stoilo.executor.verifier.targets import ReviewerKey, RevocationFile
from stoilo.server.app.trust import facts_of
from stoilo.signer.development.changes import (
    certify_fresh_epoch,
    publish_reviewers,
    replace_online_key,
    revoke,
    settle_revocations,
    with_reviewer,
    without_reviewer,
)
from stoilo.signer.development.root import create_development_root
from stoilo.signer.process.online_keys import (
    certified_online_key,
    make_online_keys,
    renew_online_metadata,
)
from stoilo.signer.process.protocol import Ping, Pong, Refreshed, RefreshMetadata
from stoilo.signer.process.service import SignerService
from tests.support.gate import INSTALLED, NOW, epoch_at
from tests.support.release import ReleasedProject

ORIGIN = "project.example/log"
DAY_S = 86_400
KEY = ReviewerKey("ab" * 32, "ann")
Change = Callable[[Path], object]


@pytest.fixture
def project(tmp_path: Path) -> ReleasedProject:
    made = ReleasedProject(tmp_path / "keys", ORIGIN, INSTALLED)
    made.publish(NOW)
    return made


def state_of(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "publishing"
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda keys: create_development_root(keys, ORIGIN, NOW, installed=INSTALLED),
        lambda keys: revoke(keys, RevocationFile(epochs=(1,)), NOW),
        lambda keys: certify_fresh_epoch(keys, NOW),
        lambda keys: replace_online_key(keys, NOW),
        lambda keys: settle_revocations(keys, NOW),
        lambda keys: publish_reviewers(
            keys, lambda named: without_reviewer(named, KEY.key), NOW
        ),
    ],
)
def test_what_needs_an_offline_key_changes_nothing(
    project: ReleasedProject, change: Change
) -> None:
    before = state_of(project.directory)
    with pytest.raises(StoiloError):
        change(project.directory)
    assert state_of(project.directory) == before


def test_operator_is_sent_to_the_ceremony(project: ReleasedProject) -> None:
    key = project.roles["root"].keys[0].public.raw.hex()
    with pytest.raises(UsageError, match="STO-K091") as refusal:
        publish_reviewers(
            project.directory,
            lambda named: with_reviewer(named, ReviewerKey(key, "ann")),
            NOW,
        )
    assert "stoilo release" in (refusal.value.hint or "")


def test_directory_that_waits_for_its_ceremony_gets_no_development_root(
    tmp_path: Path,
) -> None:
    make_online_keys(tmp_path / "keys", ORIGIN, NOW)
    with pytest.raises(UsageError, match="STO-K091"):
        create_development_root(tmp_path / "keys", ORIGIN, NOW, installed=INSTALLED)


def test_signer_renews_online_metadata_at_half_life_and_nothing_else(
    project: ReleasedProject,
) -> None:
    times = [NOW]
    service = SignerService(project.directory, clock=lambda: times[0])
    before = state_of(project.directory)
    times[0] = NOW + 4 * DAY_S
    assert isinstance(service.answer(RefreshMetadata()), Refreshed)
    after = state_of(project.directory)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"metadata/timestamp.json"}
    assert project.trust(NOW + 9 * DAY_S).timestamp_version == 2


def test_signer_makes_no_epoch_when_the_last_one_is_over(
    project: ReleasedProject,
) -> None:
    now = NOW + 100 * DAY_S
    before = state_of(project.directory)
    SignerService(project.directory, clock=lambda: now).answer(RefreshMetadata())
    after = state_of(project.directory)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"metadata/timestamp.json", "metadata/2.snapshot.json"}
    assert epoch_at(project.trust(now), now, 60) is None
    with pytest.raises(InternalError, match="STO-K024") as refusal:
        facts_of(lambda: project.trust(now), lambda: now, 60)()
    assert "STO-K024" in (refusal.value.hint or "")


def test_signer_starts_after_a_long_pause(project: ReleasedProject) -> None:
    now = NOW + 100 * DAY_S
    service = SignerService(project.directory, clock=lambda: now)
    assert isinstance(service.answer(Ping()), Pong)
    assert project.trust(now).origin == ORIGIN


def test_replaced_online_key_signs_only_once_a_root_names_it(
    project: ReleasedProject,
) -> None:
    old = certified_online_key(project.directory).public
    keys = project.make_online(NOW, replace=("online",))
    assert certified_online_key(project.directory).public == old
    later = NOW + 200 * DAY_S  # the root is renewed by then
    project.publish(later)
    assert certified_online_key(project.directory).public.raw.hex() == keys.online
    assert project.trust(later).root_version == 2


def test_metadata_of_a_replaced_key_is_signed_anew_though_it_is_fresh(
    project: ReleasedProject,
) -> None:
    later = NOW + 200 * DAY_S
    renew_online_metadata(project.directory, later - DAY_S)
    project.make_online(NOW, replace=("online",))
    project.publish(later)
    assert project.trust(later).expires > later


def test_replaced_revocation_key_is_found_beside_the_old_one(
    project: ReleasedProject,
) -> None:
    project.make_online(NOW, replace=("revocation",))
    project.publish(NOW)
    service = SignerService(project.directory, clock=lambda: NOW)
    (named,) = project.trust(NOW).revocation_keys
    assert service._revocation_key().public == named
