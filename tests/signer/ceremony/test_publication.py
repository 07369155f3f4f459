import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.ceremony.boinc_files import sign_boinc_files
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleChange
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.ceremony.publication import ReleaseWriter, publish
from stoilo.signer.release_directory import read_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.ceremony import NOW, CeremonyBench, new_key
from tests.support.gate import INSTALLED
from tests.support.stage import ReleaseStage, make_offline_key


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_first_root_is_what_volunteers_take(bench: CeremonyBench) -> None:
    files = files_of(bench.directory)
    assert files["root.json"] == files["metadata/1.root.json"]


def test_files_of_a_server_are_its_alone(bench: CeremonyBench) -> None:
    for path in bench.directory.rglob("*"):
        is_public = (
            path.is_file() and path.parent.name == "metadata"
        )  # its folder is not
        assert path.stat().st_mode & (0o033 if is_public else 0o077) == 0, path


def test_served_copy_can_be_read_by_all(fresh: CeremonyBench) -> None:
    publish(fresh.sign(fresh.first()), fresh.directory, NOW, public=True)
    for path in fresh.directory.rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044, path


def test_publishing_twice_changes_nothing(bench: CeremonyBench) -> None:
    signed = bench.sign(bench.request(Changes(renew=("policy",))))
    publish(signed, bench.directory, NOW)
    before = files_of(bench.directory)
    publish(signed, bench.directory, NOW)
    assert files_of(bench.directory) == before


@pytest.mark.parametrize("count", range(4))
def test_interrupted_publication_is_finished(
    bench: CeremonyBench, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    signed = bench.sign(
        bench.request(
            Changes(put=(NewTarget.of("log/note.txt", b"x"),), renew=("root", "gate"))
        )
    )
    write, left = ReleaseWriter.write, [count]

    def failing(self: ReleaseWriter, name: str, data: bytes) -> None:
        if not left[0]:
            raise OSError(28, "No space left on device")
        left[0] -= 1
        write(self, name, data)

    with monkeypatch.context() as patched:
        patched.setattr(ReleaseWriter, "write", failing)
        with pytest.raises((InternalError, TrustError), match="STO-K0"):
            publish(signed, bench.directory, NOW)
    assert publish(signed, bench.directory, NOW).root.version == 2


def test_ceremony_on_an_older_release_is_refused(bench: CeremonyBench) -> None:
    late = bench.sign(bench.request(Changes(renew=("policy",))))
    bench.publish(bench.request(Changes(renew=("policy",)), NOW + 60), NOW + 60)
    with pytest.raises(TrustError, match="STO-K060"):
        publish(late, bench.directory, NOW + 60)


def test_first_release_is_not_put_over_another(
    bench: CeremonyBench, tmp_path: Path
) -> None:
    other = CeremonyBench(tmp_path / "other")
    with pytest.raises(TrustError, match="STO-K060"):
        publish(other.sign(other.first()), bench.directory, NOW)


def test_release_on_another_directory_is_refused(
    bench: CeremonyBench, tmp_path: Path
) -> None:
    signed = bench.sign(bench.request(Changes(renew=("policy",))))
    with pytest.raises(TrustError, match="STO-K060"):
        publish(signed, tmp_path / "empty", NOW)


def test_problem_stops_the_publication_with_its_own_code(bench: CeremonyBench) -> None:
    signed = bench.sign(bench.request(Changes(renew=("policy",))))
    with pytest.raises(TrustError, match="STO-K058"):
        publish(signed, bench.directory, NOW + 40 * 24 * 3600)


@pytest.mark.skipif(os.geteuid() != 0, reason="a read-only directory binds others only")
def test_full_disk_leaves_the_old_release(
    bench: CeremonyBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(bench.directory)
    monkeypatch.setattr(
        ReleaseWriter, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(InternalError, match="STO-K068"):
        publish(
            bench.sign(bench.request(Changes(renew=("root",)))), bench.directory, NOW
        )
    assert files_of(bench.directory) == before


def test_volunteer_follows_a_rotation_of_two_root_keys(
    bench: CeremonyBench, tmp_path: Path
) -> None:
    root = (bench.directory / "root.json").read_bytes()
    cache = tmp_path / "cache"
    load_trust(
        read_release(bench.directory), root, NOW, installed=INSTALLED, cache=cache
    )
    new = [new_key("root", name) for name in ("dora", "emil")]
    change = RoleChange(
        "root",
        tuple(
            KeyHolder(one.name, one.ed25519().public) for one in bench.keys["root"][:2]
        ),
        tuple(KeyHolder(one.name, one.ed25519().public) for one in new),
    )
    ceremony = bench.request(Changes(keys=(change,)))
    only_new = bench.sign(ceremony, [*new, bench.keys["root"][2]])
    with pytest.raises(TrustError, match="STO-K068"):  # the old threshold is not met
        publish(only_new, bench.directory, NOW)
    bench.keys["root"] += new
    bench.publish(ceremony)
    trust = load_trust(
        read_release(bench.directory), root, NOW, installed=INSTALLED, cache=cache
    )
    assert trust.root_version == 2


def test_new_online_key_signs_what_the_old_one_did(
    bench: CeremonyBench, tmp_path: Path
) -> None:
    root = (bench.directory / "root.json").read_bytes()
    other = CeremonyBench(tmp_path / "unused").online_key
    change = [
        RoleChange(
            role,
            (KeyHolder("server", bench.online_key.public),),
            (KeyHolder("server", other.public),),
        )
        for role in ("snapshot", "timestamp")
    ]
    publish(
        bench.sign(bench.request(Changes(keys=tuple(change)))), bench.directory, NOW
    )
    refresh_online_metadata(bench.directory, other, NOW)
    trust = load_trust(read_release(bench.directory), root, NOW, installed=INSTALLED)
    assert trust.root_version == 2


def test_evidence_lies_beside_the_release(bench: CeremonyBench) -> None:
    signed = bench.sign(bench.request(Changes(renew=("policy",))))
    kept = shutil.copytree(bench.directory, bench.directory.with_name("kept"))
    publish(signed, kept, NOW)
    assert not (kept / "builds").exists()
    assert not (kept / "boinc").exists()


def with_parts(stage: ReleaseStage, directory: Path, folder: Path) -> Ceremony:
    """Return a signed ceremony of a new launcher and verifier, without BOINC's key."""
    files = stage.make_parts(folder, stage.root(directory))
    made = stage.next_ceremony(directory, stage.put(files))
    signed = stage.sign(replace(made, builds=stage.attest(files)))
    return replace(signed, boinc=())


@pytest.fixture
def stage(tmp_path: Path) -> ReleaseStage:
    """A project whose release has parts that BOINC's key signed."""
    found = ReleaseStage()
    release = tmp_path / "boinc-release"
    found.publish(release, found.first_ceremony())
    found.publish(release, with_parts(found, release, tmp_path / "1"))
    return found


def test_new_launcher_takes_boincs_signature_with_it(
    stage: ReleaseStage, tmp_path: Path
) -> None:
    release = tmp_path / "boinc-release"
    second = with_parts(stage, release, tmp_path / "2")
    with pytest.raises(TrustError, match="STO-K068"):
        publish(second, release, stage.now)
    publish(sign_boinc_files(second, stage.boinc.boinc()), release, stage.now)


def test_signature_of_a_former_boinc_key_stays_with_the_next_release(
    stage: ReleaseStage, tmp_path: Path
) -> None:
    release = tmp_path / "boinc-release"
    second = with_parts(stage, release, tmp_path / "2")
    kept, gone = (release / "boinc" / name for name in ("old_key_0", "notes"))
    for path in (kept, gone):
        path.write_text("text")
    publish(sign_boinc_files(second, stage.boinc.boinc()), release, stage.now)
    assert (kept.exists(), gone.exists()) == (True, False)


@pytest.mark.parametrize("name", ["launcher/x86_64-linux.sig", "key.pub"])
def test_boinc_signature_of_another_file_or_key_is_not_published(
    stage: ReleaseStage, tmp_path: Path, name: str
) -> None:
    release = tmp_path / "boinc-release"
    second = sign_boinc_files(
        with_parts(stage, release, tmp_path / "2"), stage.boinc.boinc()
    )
    other = sign_boinc_files(
        with_parts(stage, release, tmp_path / "3"),
        make_offline_key("boinc", "eve").boinc(),
    )
    mixed = dict(second.boinc) | {name: dict(other.boinc)[name]}
    forged = replace(second, boinc=tuple(sorted(mixed.items())))
    with pytest.raises(TrustError, match="STO-K076"):
        publish(forged, release, stage.now)


def test_transcript_that_cannot_be_read_is_not_published(bench: CeremonyBench) -> None:
    signed = bench.sign(bench.request(Changes(renew=("policy",))))
    with pytest.raises(TrustError, match="STO-K077"):
        publish(replace(signed, transcript=b"{}\n"), bench.directory, NOW)


@pytest.mark.parametrize(
    "name", ["verifier/x86_64-linux/00112233.json", "pure/x86_64-linux/00112233.json"]
)
def test_attestation_of_nobody_or_nothing_is_not_published(
    bench: CeremonyBench, name: str
) -> None:
    signed = bench.sign(bench.request(Changes(renew=("policy",))))
    with pytest.raises(TrustError, match="STO-F031"):
        publish(replace(signed, builds=((name, b"{}"),)), bench.directory, NOW)


def test_attestation_under_another_builders_name_is_not_published(
    stage: ReleaseStage, tmp_path: Path
) -> None:
    second = with_parts(stage, tmp_path / "boinc-release", tmp_path / "2")
    signed = sign_boinc_files(second, stage.boinc.boinc())
    (first, one), (other, two), *rest = signed.builds
    swapped = replace(signed, builds=((first, two), (other, one), *rest))
    with pytest.raises(TrustError, match="STO-F031"):
        publish(swapped, tmp_path / "boinc-release", stage.now)
