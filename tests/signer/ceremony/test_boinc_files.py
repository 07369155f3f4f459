import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.core.boinc.codesign import md5_hex
from stoilo.core.errors import TrustError
from stoilo.signer.boinc_keys import generate_boinc_key
from stoilo.signer.ceremony.boinc_files import (
    check_boinc_files,
    is_boinc_file,
    missing_boinc_files,
    sign_boinc_files,
)
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile
from stoilo.signer.ceremony.proposal import NewTarget, Proposal

LAUNCHER, VERIFIER = "launcher/x86_64-linux", "verifier/x86_64-linux.tar"
FILES = {LAUNCHER: b"\x7fELF", VERIFIER: b"a tar", "project.json": b"{}"}
MD5S = {name: md5_hex(FILES[name]) for name in (LAUNCHER, VERIFIER)}


KEY, OTHER = generate_boinc_key(), generate_boinc_key()


def ceremony(files: dict[str, bytes] = FILES) -> Ceremony:
    targets = tuple(NewTarget.of(name, data) for name, data in files.items())
    about = CeremonyFile(origin="project.example/log", rehearsal=True, created=1)
    return Ceremony(about, Proposal(None, (), targets))


SIGNED = sign_boinc_files(ceremony(), KEY)


def test_launcher_and_verifier_are_signed_and_nothing_else() -> None:
    assert [name for name, _ in SIGNED.boinc] == [
        "key.pub",
        f"{LAUNCHER}.sig",
        f"{VERIFIER}.sig",
    ]
    assert check_boinc_files(dict(SIGNED.boinc), MD5S) == KEY.public


def test_what_is_missing_is_named_until_it_is_signed() -> None:
    assert missing_boinc_files(ceremony()) == (LAUNCHER, VERIFIER)
    assert missing_boinc_files(SIGNED) == ()


def test_signing_twice_changes_nothing() -> None:
    assert sign_boinc_files(SIGNED, KEY) == SIGNED


def test_file_on_disk_is_signed_if_it_is_the_proposed_one(tmp_path: Path) -> None:
    file = tmp_path / "archive"
    file.write_bytes(b"a tar")
    digest = hashlib.sha256(b"a tar").hexdigest()
    one = NewTarget(VERIFIER, digest, 5, file)
    folder = replace(ceremony(), proposal=Proposal(None, (), (one,)))
    signed = dict(sign_boinc_files(folder, KEY).boinc)
    check_boinc_files(signed, {VERIFIER: MD5S[VERIFIER]})
    file.write_bytes(b"other")
    with pytest.raises(TrustError, match="STO-K076"):
        sign_boinc_files(folder, KEY)


def test_two_boinc_keys_do_not_mix() -> None:
    with pytest.raises(TrustError, match="STO-K076"):
        sign_boinc_files(SIGNED, OTHER)


@pytest.mark.parametrize("name", [name for name, _ in SIGNED.boinc])
def test_missing_file_is_refused(name: str) -> None:
    files = {key: data for key, data in SIGNED.boinc if key != name}
    with pytest.raises(TrustError, match="STO-K076"):
        check_boinc_files(files, MD5S)


def test_signature_of_a_stranger_is_refused() -> None:
    strange = dict(sign_boinc_files(ceremony(), OTHER).boinc)
    mixed = {**strange, "key.pub": dict(SIGNED.boinc)["key.pub"]}
    with pytest.raises(TrustError, match="STO-K076"):
        check_boinc_files(mixed, MD5S)


def test_extra_file_is_refused() -> None:
    files = {**dict(SIGNED.boinc), "launcher/aarch64-linux.sig": b""}
    with pytest.raises(TrustError, match="STO-K076"):
        check_boinc_files(files, MD5S)


def test_release_without_boinc_files_has_no_key() -> None:
    assert check_boinc_files({}, MD5S) is None


def test_only_app_version_files_are_boincs() -> None:
    assert is_boinc_file(LAUNCHER)
    assert not is_boinc_file("launcher/x86_64-linux.json")
    assert not is_boinc_file("flavor/pure/x86_64-linux.tar.xz")
