"""The programs of stock BOINC clients, read from a release directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoilo.core.boinc.codesign import md5_hex
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import ArchiveFile, PartFile, TrustedRelease
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from stoilo.server.engines.programs import AppProgram, CodeSignKey
from stoilo.server.release.parts import offer_programs, read_programs
from stoilo.signer.boinc_keys import sign_key_change, sign_md5
from tests.support.gate import GateBench
from tests.support.programs import LINUX, ProgramSigner

SIGNER = ProgramSigner()
FILES = {"launcher": b"\x7fELF", "verifier": b"archive"}
Release = Callable[..., TrustedRelease]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    trust = GateBench(tmp_path_factory.mktemp("root")).root.trust

    def made(*parts: PartFile, **changes: object) -> TrustedRelease:
        return dataclasses.replace(trust, parts=parts, **changes)

    return made


def part(name: str, platform: str = "x86_64-linux") -> PartFile:
    archive = ArchiveFile(platform, len(FILES[name]), content_digest(FILES[name]))
    return PartFile("stoilo-part/1", name, platform, "1", 1, archive)


BOTH = (part("launcher"), part("verifier"))


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A release directory as a ceremony leaves it."""
    for name, suffix in (("launcher", ""), ("verifier", ".tar")):
        data = FILES[name]
        base = f"x86_64-linux{suffix}"
        write(tmp_path / "targets" / name / f"{content_digest(data)}.{base}", data)
        signature = sign_md5(md5_hex(data), SIGNER.private)
        write(tmp_path / "boinc" / name / f"{base}.sig", signature)
    write(tmp_path / "boinc" / "key.pub", SIGNER.key.text)
    return tmp_path


def test_launcher_and_verifier_of_a_release_are_a_program(
    release: Release, keys: Path
) -> None:
    found = read_programs(keys, release(*BOTH))
    (program,) = found.programs
    assert program.platform == LINUX
    assert isinstance(program.launcher.source, Path)
    assert program.launcher.source.read_bytes() == FILES["launcher"]
    assert found.key == SIGNER.key


@pytest.mark.parametrize("gone", ["boinc/key.pub", "boinc/launcher/x86_64-linux.sig"])
def test_release_without_signatures_has_no_program(
    release: Release, keys: Path, gone: str
) -> None:
    (keys / gone).unlink()
    assert read_programs(keys, release(*BOTH)).programs == ()


def test_launcher_alone_is_no_program(release: Release, keys: Path) -> None:
    assert read_programs(keys, release(BOTH[0])).programs == ()


def test_cut_file_is_no_program(release: Release, keys: Path) -> None:
    (path,) = (keys / "targets" / "verifier").iterdir()
    path.write_bytes(b"arch")
    assert read_programs(keys, release(*BOTH)).programs == ()


def test_withdrawn_launcher_is_no_program(release: Release, keys: Path) -> None:
    denied = frozenset({BOTH[0].archive.sha256})
    assert read_programs(keys, release(*BOTH, denied=denied)).programs == ()


@pytest.mark.parametrize("folder", ["", "boinc"])
def test_former_key_that_vouches_is_handed_out(
    release: Release, keys: Path, folder: str
) -> None:
    old = ProgramSigner()
    signature = sign_key_change(SIGNER.private.public, old.private)
    write(keys / folder / "old_key_3", old.key.text)
    write(keys / folder / "signature_stripped_3", signature)
    (former,) = read_programs(keys, release(*BOTH)).key.former
    assert (former.key, former.signature) == (old.key.text, signature)


def test_former_key_of_an_earlier_change_is_left_out(
    release: Release, keys: Path
) -> None:
    old, between = ProgramSigner(), ProgramSigner()
    write(keys / "old_key_0", old.key.text)
    signature = sign_key_change(between.private.public, old.private)
    write(keys / "signature_stripped_0", signature)
    assert read_programs(keys, release(*BOTH)).key.former == ()


class RefusingEngine:
    """An engine that refuses whatever it is given."""

    def __init__(self) -> None:
        self.given: tuple[tuple[AppProgram, ...], CodeSignKey] | None = None

    def set_programs(self, programs: tuple[AppProgram, ...], key: CodeSignKey) -> None:
        """Refuse."""
        self.given = programs, key
        raise TrustError("STO-K076", "no")


def test_program_that_the_engine_refuses_is_logged_and_stops_nothing(
    release: Release, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = RefusingEngine()
    offer_programs(engine, keys, release(*BOTH))
    assert engine.given is not None
    assert "STO-K076" in caplog.text


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    made = EmbeddedEngine(tmp_path / "engine")
    yield made
    made.close()


def test_publication_is_offered_while_the_server_runs(
    release: Release, keys: Path, engine: EmbeddedEngine
) -> None:
    offer_programs(engine, keys, release())
    assert engine.platforms() == ()
    offer_programs(engine, keys, release(*BOTH))
    assert engine.platforms() == (LINUX,)


def test_withdrawal_is_obeyed_while_the_server_runs(
    release: Release, keys: Path, engine: EmbeddedEngine
) -> None:
    offer_programs(engine, keys, release(*BOTH))
    denied = frozenset({BOTH[1].archive.sha256})
    offer_programs(engine, keys, release(*BOTH, denied=denied))
    assert engine.platforms() == ()


def test_forged_signature_leaves_the_former_program(
    release: Release,
    keys: Path,
    engine: EmbeddedEngine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    offer_programs(engine, keys, release(*BOTH))
    forged = sign_md5(md5_hex(FILES["launcher"]), ProgramSigner().private)
    write(keys / "boinc" / "launcher" / "x86_64-linux.sig", forged)
    offer_programs(engine, keys, release(*BOTH))
    assert engine.platforms() == (LINUX,)
    assert "STO-K076" in caplog.text


@pytest.mark.parametrize("text", ["", "1024\n", "\u00fc", "x" * 9999])
def test_unusable_key_file_stops_nothing(
    release: Release, keys: Path, engine: EmbeddedEngine, text: str
) -> None:
    write(keys / "boinc" / "key.pub", text)
    offer_programs(engine, keys, release(*BOTH))
    assert engine.platforms() == ()
