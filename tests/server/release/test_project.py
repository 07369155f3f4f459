from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from stoilo.audit.witness.client import NO_WITNESSES
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import RevocationFile, TrustedRelease
from stoilo.executor.verifier.trust import ReleaseFiles
from stoilo.policies.policy import default_policy
from stoilo.server.release import project as module
from stoilo.server.release.expiry import ReleaseWatch
from stoilo.server.release.project import Project, ProjectRoot, Release
from stoilo.server.release.released import ServerTerms
from stoilo.signer.process.client import SignerClient
from stoilo.signer.process.online_keys import renew_online_metadata
from stoilo.signer.release_status import warnings_of
from tests.support.gate import INSTALLED, NOW
from tests.support.release import ReleasedProject
from tests.support.server import MemoryEngine

POLICY = default_policy()
FLAVOR = "f" * 64


@dataclass
class Signer:
    """A signer in this process, which can be told to refuse."""

    directory: Path
    refuses: bool = False
    asked: int = 0

    def refresh_metadata(self) -> int:
        self.asked += 1
        if self.refuses:
            raise TrustError("STO-K012", "too few signatures")
        renew_online_metadata(self.directory, NOW)
        return 0


@dataclass
class Scene:
    """A release, its people, and a server's view of it."""

    people: ReleasedProject
    signer: Signer
    project: Project
    release: Release
    logged: list[int] = field(default_factory=list)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(module.time, "time", lambda: float(NOW))
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    people = ReleasedProject(
        tmp_path / "keys", "project.example/log", INSTALLED, policies=(POLICY.digest,)
    )
    people.publish(NOW)
    assert people.online is not None
    vkey = people.online.log_vkey
    signer = Signer(people.directory)
    root = ProjectRoot(
        people.directory,
        people.directory / "root.json",
        people.origin,
        vkey,
        released=True,
    )
    project = Project(
        root,
        None,
        cast("SignerClient", signer),
        tmp_path / "signer.sock",
        INSTALLED,
        NO_WITNESSES,
        ServerTerms("", vkey, NO_WITNESSES, POLICY),
    )
    logged: list[int] = []

    def record(files: ReleaseFiles, trust: TrustedRelease) -> None:
        assert files.files
        logged.append(trust.revocation_version)

    release = Release(project, MemoryEngine(tmp_path), record)
    return Scene(people, signer, project, release, logged)


def test_publication_is_signed_verified_and_logged(scene: Scene) -> None:
    scene.people.denied = RevocationFile(flavors=(FLAVOR,))
    scene.people.publish(NOW, online_too=False)
    assert scene.release.trust().withdrawn_flavors == {FLAVOR}
    assert scene.logged == [1, 2]


def test_without_a_publication_the_signer_is_left_alone(scene: Scene) -> None:
    for _ in range(3):
        scene.release.trust()
    assert scene.signer.asked == 1
    assert scene.logged == [1]


def test_publication_that_the_signer_refuses_changes_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.signer.refuses = True
    scene.people.denied = RevocationFile(flavors=(FLAVOR,))
    scene.people.publish(NOW, online_too=False)
    assert not scene.release.trust().withdrawn_flavors
    assert "STO-K012" in caplog.text
    scene.signer.refuses = False
    assert scene.release.trust().withdrawn_flavors == {FLAVOR}


def test_release_that_no_longer_certifies_the_server_is_said(scene: Scene) -> None:
    watch = ReleaseWatch(
        scene.people.directory,
        scene.release.trust,
        lambda: NOW,
        scene.project.check_certified,
    )
    assert watch.status().state == "ok"
    scene.people.policies = ("0" * 64,)
    scene.people.publish(NOW, online_too=False)
    status = watch.status()
    assert status.trouble == "STO-K094"
    assert any("STO-K094" in line for line in warnings_of(status))


def test_expired_offline_role_stops_what_relies_on_it_and_is_said(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = NOW + 400 * 86_400
    monkeypatch.setattr(module.time, "time", lambda: float(late))
    monkeypatch.setattr(module, "REFRESH_S", -1.0)
    with pytest.raises(TrustError):
        scene.release.trust()
    status = ReleaseWatch(
        scene.people.directory, scene.release.trust, lambda: late
    ).status()
    assert (status.state, bool(status.trouble)) == ("expired", True)
    assert any("root expired" in line for line in warnings_of(status))
