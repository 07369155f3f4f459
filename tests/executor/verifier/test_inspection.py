"""Own digests against the published release, and that release against the log."""

import dataclasses
import hashlib
import os

import msgspec
import pytest

from stoilo.audit.format.facts import NamedDigest, ReleaseRecord
from stoilo.audit.format.proof import ProvenLeaf
from stoilo.audit.format.records import (
    LoggedRelease,
    record_leaf,
    render_record,
    render_release_proof,
)
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.inspection import (
    OwnParts,
    check_self,
    hash_own_tree,
    hash_program,
    prove_release,
    read_logged,
    render_check,
)
from stoilo.executor.verifier.targets import ArchiveFile, PartFile
from tests.support.frozen import make_tree

LAUNCHER, TREE, ARCHIVE = "a" * 64, "b" * 64, "c" * 64
PLATFORM = "x86_64-linux"


def part(name, archive, tree="", serial=4):
    return PartFile(
        format="stoilo-part/1",
        part=name,
        platform=PLATFORM,
        version="1.2",
        serial=serial,
        archive=ArchiveFile(name="x", size=1, sha256=archive),
        tree=tree,
    )


@pytest.fixture
def trust(gate):
    parts = (part("launcher", LAUNCHER), part("verifier", ARCHIVE, TREE))
    return dataclasses.replace(gate.root.trust, parts=parts)


def record_of(*digests):
    names = ("launcher/x86_64-linux", "verifier/x86_64-linux")
    return ReleaseRecord(
        origin="o",
        time=1,
        root=1,
        targets=1,
        metadata=(),
        parts=tuple(map(NamedDigest, names, digests)),
        transcript="",
    )


def logged(*digests):
    return LoggedRelease(record_of(*digests), ProvenLeaf(3, 9, b"root", None))


def refused(call, *arguments):
    with pytest.raises(TrustError) as caught:
        call(*arguments)
    return caught.value.code


def test_published_and_logged_program_is_named(trust):
    own = OwnParts(PLATFORM, LAUNCHER, TREE)
    check = check_self(trust, own, logged(LAUNCHER, ARCHIVE))
    text = render_check(check)
    assert [one.part for one in check.parts] == ["launcher", "verifier"]
    assert "entry 3 of 9" in text
    assert "DEVELOPMENT" in text


def test_without_a_proof_it_says_what_was_not_compared(trust):
    text = render_check(check_self(trust, OwnParts(PLATFORM, LAUNCHER, None), None))
    assert "not compared with the project's log" in text


@pytest.mark.parametrize(
    ("own", "code"),
    [
        (OwnParts(PLATFORM, "d" * 64, TREE), "STO-F045"),
        (OwnParts(PLATFORM, LAUNCHER, "d" * 64), "STO-F045"),
        (OwnParts(PLATFORM, LAUNCHER, "d" * 64, serial=4), "STO-F045"),
        (OwnParts(PLATFORM, LAUNCHER, "d" * 64, serial=3), "STO-F046"),
        (OwnParts(PLATFORM, "d" * 64, "e" * 64, serial=3), "STO-F046"),
        (OwnParts(PLATFORM, "d" * 64, "e" * 64, serial=4), "STO-F045"),
        (OwnParts(PLATFORM, "d" * 64, TREE, serial=3), "STO-F045"),
        (OwnParts("other-linux", LAUNCHER, TREE), "STO-F046"),
        (OwnParts(PLATFORM, None, None), "STO-F046"),
    ],
)
def test_other_program_is_refused(trust, own, code):
    assert refused(check_self, trust, own, None) == code


@pytest.mark.parametrize(
    "digests", [("d" * 64, ARCHIVE), (LAUNCHER, "d" * 64), (LAUNCHER,), ()]
)
def test_release_that_the_log_tells_otherwise_is_refused(trust, digests):
    own = OwnParts(PLATFORM, LAUNCHER, TREE)
    assert refused(check_self, trust, own, logged(*digests)) == "STO-F045"


def test_program_is_hashed_whole(tmp_path):
    (tmp_path / "launcher").write_bytes(b"program")
    expected = hashlib.sha256(b"program").hexdigest()
    assert hash_program(tmp_path / "launcher") == expected
    assert refused(hash_program, tmp_path / "none") == "STO-F046"


def test_own_tree_is_hashed_again(tmp_path):
    made = make_tree(tmp_path / "tree")
    (tmp_path / "tree" / "MANIFEST").write_bytes(made.manifest)
    assert hash_own_tree(tmp_path / "tree") == made.wanted.digest
    (tmp_path / "tree" / "more").write_bytes(b"")
    assert refused(hash_own_tree, tmp_path / "tree") == "STO-F006"
    assert refused(hash_own_tree, tmp_path) == "STO-F046"


def test_proof_is_optional_and_a_bad_one_is_refused(tmp_path, gate):
    trust = gate.root.trust
    assert read_logged(tmp_path, trust) is None
    (tmp_path / "release.record.json").write_bytes(b"{}")
    (tmp_path / "release.tlog-proof").write_bytes(b"x")
    assert refused(read_logged, tmp_path, trust) == "STO-F045"


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir])
def test_what_a_slot_holds_in_place_of_a_proof_is_refused(tmp_path, gate, plant):
    plant(tmp_path / "release.record.json")
    assert refused(read_logged, tmp_path, gate.root.trust) == "STO-F045"


def test_nothing_of_the_findings_commands_a_terminal(trust):
    evil = msgspec.structs.replace(trust.parts[0], version="1\x1b[2J\n\u202e1")
    shown = dataclasses.replace(trust, parts=(evil,), origin="o\x1b]0;x\x07")
    text = render_check(check_self(shown, OwnParts(PLATFORM, LAUNCHER, None), None))
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == 3


def test_root_of_a_rehearsal_is_named(trust):
    rehearsal = dataclasses.replace(trust, rehearsal=True)
    text = render_check(check_self(rehearsal, OwnParts(PLATFORM, LAUNCHER, None), None))
    assert "REHEARSAL" in text


def test_proof_of_the_log_is_checked_under_the_releases_policy(gate, tmp_path):
    record = render_record(record_of(LAUNCHER, ARCHIVE))
    leaf = record_leaf(record, "1")
    proof = render_release_proof(gate.log(leaf), leaf)
    found = prove_release(record, proof, gate.root.trust)
    assert found.record == record_of(LAUNCHER, ARCHIVE)
    (tmp_path / "release.record.json").write_bytes(record)
    (tmp_path / "release.tlog-proof").write_bytes(proof)
    assert read_logged(tmp_path, gate.root.trust) == found


def test_record_of_another_release_does_not_fit_the_proof(gate):
    record = render_record(record_of(LAUNCHER, ARCHIVE))
    leaf = record_leaf(record, "1")
    proof = render_release_proof(gate.log(leaf), leaf)
    other = render_record(record_of(LAUNCHER, "d" * 64))
    assert refused(prove_release, other, proof, gate.root.trust) == "STO-F045"
