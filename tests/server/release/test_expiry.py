from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.server.release.expiry import ReleaseWatch, epochs_until, judge_trusted
from stoilo.signer.release_status import (
    ReleaseStatus,
    judge_release,
    read_roles,
    warnings_of,
)
from tests.support.gate import INSTALLED, NOW
from tests.support.release import ReleasedProject
from tests.support.server import ManualClock

DAY_S = 86_400


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ReleasedProject:
    folder = tmp_path_factory.mktemp("released") / "keys"
    made = ReleasedProject(folder, "project.example/log", INSTALLED, epochs=4)
    made.publish(NOW)
    return made


@pytest.fixture(scope="module")
def trust(project: ReleasedProject) -> TrustedRelease:
    return project.trust(NOW)


def status(project: ReleasedProject, trust: TrustedRelease, days: int) -> ReleaseStatus:
    now = NOW + days * DAY_S
    return judge_trusted(read_roles(project.directory, now), trust, now)


def test_fresh_release_needs_nobody(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    fresh = status(project, trust, 0)
    assert (fresh.state, warnings_of(fresh)) == ("ok", ())
    assert {one.role for one in fresh.roles} >= {"root", "targets", "gate", "timestamp"}


def test_people_are_told_months_before_the_targets_expire(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    states = {
        days: {one.role: one.state for one in status(project, trust, days).roles}
        for days in (100, 130, 170, 181)
    }
    told = [states[days]["targets"] for days in sorted(states)]
    assert told == ["ok", "soon", "urgent", "expired"]


def test_last_epoch_s_end_is_told_before_admissions_are_cut_short(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    days = (epochs_until(trust, NOW) - NOW) // DAY_S
    seen = [status(project, trust, days - left).epochs for left in (30, 20, 10, -1)]
    assert seen == ["ok", "soon", "urgent", "expired"]


def test_withdrawn_epochs_do_not_count(trust: TrustedRelease) -> None:
    numbers = frozenset(epoch.number for epoch in trust.epochs)
    assert epochs_until(dataclasses.replace(trust, revoked_epochs=numbers), NOW) == 0
    assert epochs_until(dataclasses.replace(trust, min_epoch=99), NOW) == 0


def test_release_that_cannot_be_verified_is_the_worst_state() -> None:
    found = judge_release((), NOW, trouble="STO-K011")
    assert (found.state, found.trouble, found.origin) == ("expired", "STO-K011", "")


def test_warnings_come_worst_first_and_say_what_to_do(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    lines = warnings_of(status(project, trust, 125))
    assert "timestamp expired" in " ".join(lines[:3])
    assert lines[-1].startswith(("targets", "gate", "policy", "rev"))
    assert any("stoilo release request" in line for line in lines)


def test_watch_tells_a_thing_once_a_day(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    clock = ManualClock(NOW + 150 * DAY_S)
    watch = ReleaseWatch(project.directory, lambda: trust, clock)
    assert watch.tell()
    assert not watch.tell()
    clock.now += 2 * DAY_S
    assert watch.tell()


def test_watch_survives_a_release_that_cannot_be_read(
    project: ReleasedProject, tmp_path: Path
) -> None:
    def refuse() -> TrustedRelease:
        raise TrustError("STO-K011", "expired")

    for directory, code in ((project.directory, "STO-K011"), (tmp_path, "STO-K052")):
        watch = ReleaseWatch(directory, refuse, lambda: NOW)
        assert watch.status().trouble == code
