from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from stoilo.audit.format.facts import ReleaseRecord
from stoilo.audit.format.leaf import parse_record, record_digest
from stoilo.audit.format.proof import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    check_release_proof,
)
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import ObjectKind, SideStore
from stoilo.core.digests import content_digest
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import ReleaseFiles
from stoilo.server.db.store import Store
from stoilo.server.log.leaves import LeafBook
from stoilo.server.log.ports import ProjectFacts
from stoilo.server.release.changes import (
    ReleaseProof,
    facts_in_force,
    find_changes,
    is_logged_release,
    note_changes,
    read_transcript,
    release_record,
)
from stoilo.signer.release_directory import read_release
from tests.support.faulty_log import LogKey
from tests.support.gate import INSTALLED, NOW, GateBench
from tests.support.release import ReleasedProject, flavor_files

ORIGIN = "log.test/t"
KEY = LogKey(ORIGIN)
FLAVOR = content_digest(b"flavor")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ReleasedProject:
    folder = tmp_path_factory.mktemp("logged")
    parts = flavor_files(folder / "parts", "pure", FLAVOR)
    made = ReleasedProject(folder / "keys", ORIGIN, INSTALLED, parts=parts)
    made.publish(NOW)
    return made


@pytest.fixture(scope="module")
def trust(project: ReleasedProject) -> TrustedRelease:
    return project.trust(NOW)


def files_of(project: ReleasedProject) -> ReleaseFiles:
    return read_release(project.directory)


def standing(
    project: ReleasedProject, trust: TrustedRelease, transcript: str = ""
) -> dict[str, object]:
    return facts_in_force(
        trust, files_of(project), NOW, policy_digest="a" * 64, transcript=transcript
    )


def test_record_names_every_offline_file_and_every_archive(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    record = release_record(trust, files_of(project), NOW)
    assert [one.name for one in record.metadata] == [
        "1.gate.json", "1.policy.json", "1.reviewers.json", "1.revocation.json",
        "1.root.json", "1.targets.json",
    ]  # fmt: skip
    for one in record.metadata:
        data = (project.directory / "metadata" / one.name).read_bytes()
        assert one.digest == content_digest(data)
    (part,) = record.parts
    assert (part.name, part.digest) == (
        "flavor/pure/x86_64-linux",
        content_digest(b"an archive"),
    )


def test_renewed_timestamp_is_no_new_release(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    files = files_of(project)
    renewed = ReleaseFiles((*files.files, ("metadata/9.snapshot.json", b"x")))
    assert release_record(trust, renewed, NOW) == release_record(trust, files, NOW)


def test_release_signed_by_people_is_logged_and_a_plain_development_root_is_not(
    trust: TrustedRelease, tmp_path: Path
) -> None:
    development = GateBench(tmp_path / "root").root.trust
    assert is_logged_release(trust)
    assert not is_logged_release(development)
    assert is_logged_release(dataclasses.replace(development, parts=trust.parts))


def test_same_release_is_noted_once_and_another_again(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    before, after = standing(project, trust), standing(project, trust, "b" * 64)
    assert find_changes(before, standing(project, trust), NOW + 9) == []
    (event,) = find_changes(before, after, NOW + 9)
    assert isinstance(event.record, ReleaseRecord)
    assert event.record.transcript == "b" * 64


def test_released_flavor_is_logged_with_its_archives(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    flavor = standing(project, trust)[f"flavor:{FLAVOR}"]
    assert flavor.archives == (content_digest(b"an archive"),)


def test_withdrawn_flavor_is_in_force_no_more(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    gone = dataclasses.replace(trust, withdrawn_flavors=frozenset({FLAVOR}))
    events = find_changes(standing(project, trust), standing(project, gone), NOW)
    assert [event.record.change for event in events] == ["withdrawn"]


def test_transcript_is_named_by_its_digest(tmp_path: Path) -> None:
    assert read_transcript(tmp_path) == ""
    (tmp_path / "transcript.jsonl").write_bytes(b"{}\n")
    assert read_transcript(tmp_path) == content_digest(b"{}\n")


def test_logged_release_has_record_and_proof_beside_it(
    project: ReleasedProject, trust: TrustedRelease, tmp_path: Path
) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'server.sqlite'}")
    side = SideStore.in_memory()
    facts = ProjectFacts(ORIGIN, 1, NOW + 1, "2" * 64)
    with Sequencer.open(tmp_path, ORIGIN, KEY.sign, policy=KEY.policy) as log:
        proof = ReleaseProof(project.directory, store, log)
        assert not proof.upkeep()
        note_changes(store, standing(project, trust), NOW)
        LeafBook(store, side, lambda: facts, lambda: NOW).append_all(log)
        assert proof.upkeep()
        assert not proof.upkeep()
        (project.directory / RELEASE_PROOF_FILE).write_bytes(b"torn by a crash")
        assert ReleaseProof(project.directory, store, log).upkeep()
    store.close()
    record = (project.directory / RELEASE_RECORD_FILE).read_bytes()
    text = (project.directory / RELEASE_PROOF_FILE).read_bytes()
    logged = check_release_proof(record, text, KEY.policy)
    assert (
        logged.record.metadata == release_record(trust, files_of(project), NOW).metadata
    )
    assert side.get(ObjectKind.RECORD, record_digest(record)) == record
    assert parse_record(record) == logged.record
