import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.signer.attestations import BuildInputs, make_attestation
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.ceremony.review import review
from stoilo.signer.development.root import create_development_root
from stoilo.signer.published.places import open_place
from stoilo.signer.published.verify import PublishedRelease, verify_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.stage import DAY_S, ReleaseStage, make_flavor

PURE = "flavor/pure/x86_64-linux.tar.xz"


def verify(
    stage: ReleaseStage, release: Path, root: bytes | None = None, now: int = 0
) -> PublishedRelease:
    place = open_place(str(release))
    return verify_release(place, now or stage.now, installed=stage.installed, root=root)


def refusal(
    stage: ReleaseStage, release: Path, root: bytes | None = None, now: int = 0
) -> str:
    """Return the code, or an empty text when nothing was refused."""
    try:
        verify(stage, release, root, now)
    except StoiloError as error:
        return error.code
    return ""


def files_of(release: Path) -> list[Path]:
    return sorted(path for path in release.rglob("*") if path.is_file())


def test_whole_release_holds(stage: ReleaseStage, template: Path) -> None:
    found = verify(stage, template, stage.root(template))
    assert found.given_root
    assert [part.part for part in found.trust.parts] == ["pure", "launcher", "verifier"]
    assert [one.builders for one in found.evidence] == [("bea", "ben")] * 3
    assert found.boinc == stage.boinc.boinc().public
    assert found.logged is not None
    assert found.files == len(files_of(template))


def test_every_role_in_force_is_reported_with_its_signers(
    stage: ReleaseStage, template: Path
) -> None:
    roles = {one.role: one for one in verify(stage, template).roles}
    assert list(roles)[:2] == ["root", "targets"]
    assert roles["targets"].signed.version == 3
    assert len(roles["targets"].signers) == roles["targets"].threshold == 2


def test_without_a_root_only_the_fingerprint_speaks(
    stage: ReleaseStage, template: Path
) -> None:
    found = verify(stage, template)
    assert not found.given_root
    shown = review(stage.next_ceremony(template, Changes()), stage.now).first_root
    assert found.first_root == shown


def test_root_of_another_project_is_refused(
    stage: ReleaseStage, template: Path, tmp_path: Path
) -> None:
    other = ReleaseStage(now=stage.now)
    other.publish(tmp_path / "other", other.first_ceremony())
    assert refusal(stage, template, other.root(tmp_path / "other")) == "STO-K012"


@given(st.data())
def test_any_changed_byte_anywhere_is_refused(
    stage: ReleaseStage, template: Path, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(files_of(template)))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :]
    assert code_with(stage, template, path, changed)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_file_cut_or_longer_is_refused(
    stage: ReleaseStage, template: Path, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(files_of(template)))
    content = path.read_bytes()
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    longer = content + data.draw(st.binary(min_size=1, max_size=8))
    assert code_with(stage, template, path, cut)
    assert code_with(stage, template, path, longer)


def code_with(stage: ReleaseStage, template: Path, path: Path, content: bytes) -> str:
    """Return the code with other contents in one file, which gets its own back."""
    kept = path.read_bytes()
    path.write_bytes(content)
    try:
        return refusal(stage, template)
    finally:
        path.write_bytes(kept)


def test_spaces_that_no_signature_covers_are_refused(
    stage: ReleaseStage, template: Path
) -> None:
    for path in files_of(template):
        if path.suffix == ".json":
            assert code_with(stage, template, path, path.read_bytes() + b"\n"), (
                path.name
            )


def test_signature_in_upper_case_is_refused(
    stage: ReleaseStage, template: Path
) -> None:
    path = template / "metadata" / "1.root.json"
    head, mark, tail = path.read_bytes().partition(b'"sig":"')
    raised = head + mark + tail[:128].upper() + tail[128:]
    assert code_with(stage, template, path, raised) == "STO-K050"


def test_every_missing_file_is_refused(
    stage: ReleaseStage, template: Path, tmp_path: Path
) -> None:
    aside = tmp_path / "aside"
    for path in files_of(template):
        path.rename(aside)
        try:
            assert refusal(stage, template), path.name
        finally:
            aside.rename(path)


@pytest.mark.parametrize(
    "name",
    [
        "extra",
        ".hidden",
        "metadata/1.other.json",
        "metadata/3.targets.json",
        "metadata/9.root.json",
        "metadata/01.root.json",
        "metadata/9.snapshot.json",
        "targets/project.json",
        f"targets/{'0' * 64}.project.json",
        "builds/pure/x86_64-linux/00000000.json",
        "builds/x",
        "boinc/launcher/aarch64-linux.sig",
        "release.tlog-proof.1",
        "online/online.pem",
        "state/ledger",
    ],
)
def test_extra_file_is_refused(stage: ReleaseStage, release: Path, name: str) -> None:
    (release / name).parent.mkdir(exist_ok=True, parents=True)
    (release / name).write_bytes(b"{}")
    assert refusal(stage, release)


def test_link_is_refused(stage: ReleaseStage, release: Path, tmp_path: Path) -> None:
    path = release / "metadata" / "1.targets.json"
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    assert refusal(stage, release) == "STO-K013"


def test_pipe_does_not_stop_the_check(stage: ReleaseStage, release: Path) -> None:
    (release / "metadata" / "timestamp.json").unlink()
    os.mkfifo(release / "metadata" / "timestamp.json")
    assert refusal(stage, release) == "STO-K013"


def test_swapped_files_are_refused(stage: ReleaseStage, release: Path) -> None:
    (first, second) = sorted((release / "boinc").rglob("*.sig"))
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert refusal(stage, release) == "STO-K076"


def test_expired_release_is_refused_and_a_renewed_one_holds(
    stage: ReleaseStage, release: Path
) -> None:
    later = stage.now + 8 * DAY_S
    assert refusal(stage, release, now=later) == "STO-K011"
    refresh_online_metadata(release, stage.online, later)
    assert refusal(stage, release, now=later) == ""


def publish_parts(
    stage: ReleaseStage, release: Path, files: dict[str, bytes | Path]
) -> str:
    """Publish attested parts that no review stops; returns the code of the check."""
    ceremony = stage.next_ceremony(release, stage.put(files))
    stage.force(release, replace(ceremony, builds=stage.attest(files)))
    return refusal(stage, release)


def test_archive_that_is_signed_but_holds_another_tree_is_refused(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    files = make_flavor(tmp_path / "one", "pure", 8)
    other = make_flavor(tmp_path / "other", "pure", 9)[PURE]
    assert isinstance(other, Path)
    record = msgspec.json.decode(files["flavor/pure/x86_64-linux.json"])
    data = other.read_bytes()
    record["archive"] |= {"size": len(data), "sha256": content_digest(data)}
    files |= {PURE: other, "flavor/pure/x86_64-linux.json": msgspec.json.encode(record)}
    assert publish_parts(stage, release, files) == "STO-F006"


def test_launcher_of_another_verifier_is_refused(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    first = stage.make_parts(tmp_path, stage.root(release))
    second = stage.make_parts(tmp_path, stage.root(release))
    mixed = second | {
        name: first[name] for name in first if name.startswith("launcher")
    }
    assert publish_parts(stage, release, mixed) == "STO-F034"


def test_verifier_that_knows_another_root_is_refused(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    other = ReleaseStage(now=stage.now)
    other.publish(tmp_path / "other", other.first_ceremony())
    files = stage.make_parts(tmp_path / "parts", other.root(tmp_path / "other"))
    assert publish_parts(stage, release, files) == "STO-F034"


def test_verifier_for_development_is_refused_in_a_real_release(
    stage: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    lax = replace(stage, rehearsal=True)
    lax._serial = 20
    files = lax.make_parts(tmp_path / "parts", stage.root(release))
    assert publish_parts(stage, release, files) == "STO-F034"


def test_dishonest_builder_is_noticed(stage: ReleaseStage, release: Path) -> None:
    found = verify(stage, release)
    part = next(one for one in found.trust.parts if one.part == "pure")
    other = msgspec.structs.replace(part, tree="00" * 32)
    bea = stage.builders["bea"]
    path = next(
        path
        for path in (release / "builds" / "pure").rglob("*.json")
        if path.stem == content_digest(bea.public.raw)[:8]
    )
    path.write_bytes(make_attestation(other, BuildInputs(), bea))
    assert refusal(stage, release) == "STO-F032"


def test_log_proof_of_an_earlier_release_is_refused(
    stage: ReleaseStage, release: Path
) -> None:
    put = (NewTarget.of("policy/accepted.json", b'{"digests":[],"reviewed":{}} '),)
    kept = {
        name: (release / name).read_bytes()
        for name in ("release.record.json", "release.tlog-proof")
    }
    stage.publish(release, stage.next_ceremony(release, Changes(put=put)))
    assert refusal(stage, release) == ""
    for name, data in kept.items():
        (release / name).write_bytes(data)
    assert refusal(stage, release) == "STO-L141"


def test_release_without_log_proof_holds_and_says_so(
    stage: ReleaseStage, release: Path
) -> None:
    (release / "release.record.json").unlink()
    (release / "release.tlog-proof").unlink()
    assert verify(stage, release).logged is None


def test_development_root_of_a_data_directory_is_checked_too(
    stage: ReleaseStage, tmp_path: Path
) -> None:
    create_development_root(
        tmp_path / "keys", stage.origin, stage.now, installed=stage.installed
    )
    found = verify(stage, tmp_path)
    assert found.trust.development
    assert found.evidence == ()
    shutil.copy(tmp_path / "keys" / "root.json", tmp_path / "keys" / "metadata" / "x")
    assert refusal(stage, tmp_path) == "STO-K013"


def test_place_without_release_is_a_usage_error(
    stage: ReleaseStage, tmp_path: Path
) -> None:
    assert refusal(stage, tmp_path) == "STO-K052"
    with pytest.raises(StoiloError, match="STO-K052"):
        open_place(str(tmp_path / "nothing"))


def test_part_of_a_real_release_needs_its_builders(
    stage: ReleaseStage, release: Path
) -> None:
    for path in list((release / "builds" / "pure").rglob("*.json")):
        path.unlink()
    with pytest.raises(TrustError, match="STO-F030"):
        verify(stage, release)


@pytest.mark.slow
def test_changed_bytes_of_every_file_are_refused(
    stage: ReleaseStage, template: Path
) -> None:
    chance = random.Random(7)
    for path in files_of(template):
        content = path.read_bytes()
        for at in chance.sample(range(len(content)), min(len(content), 25)):
            flip = chance.randrange(1, 256)
            changed = content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :]
            assert code_with(stage, template, path, changed), (path.name, at, flip)
