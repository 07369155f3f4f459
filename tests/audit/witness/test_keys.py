import stat
from pathlib import Path

import pytest

from stoilo.audit.format.note import KeyType, parse_vkey, verify_signature
from stoilo.audit.witness.keys import (
    KEY_FILE,
    VKEY_FILE,
    load_witness_key,
    make_witness_key,
    read_log_keys,
)
from stoilo.core.errors import StoiloError, TrustError, UsageError
from tests.support.faulty_log import LogKey
from tests.support.local_witness import GrowingLog

VKEY = LogKey("log.test/t").vkey


def test_key_is_made_once_and_private(tmp_path: Path) -> None:
    first = make_witness_key(tmp_path / "w", "witness.test/w")
    assert make_witness_key(tmp_path / "w", "witness.test/w").vkey == first.vkey
    assert stat.S_IMODE((tmp_path / "w" / KEY_FILE).stat().st_mode) == 0o600
    assert first.verifier.kind is KeyType.COSIGNATURE
    assert parse_vkey(first.vkey) == first.verifier


def test_two_witnesses_have_two_keys(tmp_path: Path) -> None:
    one = make_witness_key(tmp_path / "1", "witness.test/w")
    other = make_witness_key(tmp_path / "2", "witness.test/w")
    assert one.verifier.public != other.verifier.public


def test_key_keeps_its_name(tmp_path: Path) -> None:
    make_witness_key(tmp_path, "witness.test/w")
    with pytest.raises(UsageError, match="STO-L110"):
        make_witness_key(tmp_path, "witness.test/other")


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb"])
def test_unusable_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="STO-L110"):
        make_witness_key(tmp_path / "w", name)
    assert not (tmp_path / "w").exists()


def test_key_open_to_others_is_refused(tmp_path: Path) -> None:
    make_witness_key(tmp_path, "witness.test/w")
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(TrustError, match="STO-L110"):
        load_witness_key(tmp_path)


def test_exchanged_public_part_is_refused(tmp_path: Path) -> None:
    other = make_witness_key(tmp_path / "2", "witness.test/w")
    make_witness_key(tmp_path / "1", "witness.test/w")
    (tmp_path / "1" / VKEY_FILE).write_text(other.vkey)
    with pytest.raises(TrustError, match="STO-L110"):
        load_witness_key(tmp_path / "1")


def test_missing_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(TrustError) as caught:
        load_witness_key(tmp_path)
    assert "key witness" in caught.value.hint


def test_crash_between_the_two_files_is_mended(tmp_path: Path) -> None:
    vkey = make_witness_key(tmp_path, "witness.test/w").vkey
    (tmp_path / VKEY_FILE).unlink()
    assert make_witness_key(tmp_path, "witness.test/w").vkey == vkey


def test_log_keys_are_read_from_lines() -> None:
    lines = ["# logs", "", VKEY, f"log {VKEY} https://log.test/", f" {VKEY} "]
    assert read_log_keys(lines) == (parse_vkey(VKEY),)


def test_witness_key_is_no_log_key(tmp_path: Path) -> None:
    mine = make_witness_key(tmp_path, "witness.test/w").vkey
    for lines in ([mine], ["nonsense"], [], ["log"]):
        with pytest.raises(StoiloError, match="STO-U003"):
            read_log_keys(lines)


def test_witness_may_sign_with_ml_dsa(tmp_path: Path) -> None:
    key = make_witness_key(tmp_path, "witness.test/w", "ml-dsa-44")
    assert key.verifier.kind is KeyType.ML_DSA_44
    text = GrowingLog(LogKey("log.test/t")).body(5)
    verify_signature(text, load_witness_key(tmp_path).cosign(text, 7), key.verifier)


def test_directory_that_can_hold_no_key_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrustError, match="STO-L110"):
        make_witness_key(tmp_path / "file" / "own", "w.test/w")
