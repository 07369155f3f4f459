from pathlib import Path

import pytest

from stoilo.audit.format.note import KeyType, private_vkey, render_vkey
from stoilo.audit.format.policy import LogPolicy, parse_policy, render_policy
from stoilo.audit.witness.client import (
    NO_WITNESSES,
    read_witnesses,
    with_log,
    without_urls,
)
from stoilo.audit.witness.keys import make_witness_key
from stoilo.core.errors import StoiloError
from tests.support.faulty_log import LogKey

LOG = LogKey("log.test/t").vkey


@pytest.fixture
def vkey(tmp_path: Path) -> str:
    return make_witness_key(tmp_path / "w", "witness.test/w").vkey


def read(tmp_path: Path, text: str) -> LogPolicy:
    (tmp_path / "policy").write_text(text)
    return read_witnesses(str(tmp_path / "policy"))


def test_no_file_means_no_witnesses() -> None:
    assert read_witnesses("") == NO_WITNESSES
    assert render_policy(with_log(NO_WITNESSES, LOG)) == (
        f"log {LOG}\nquorum none\n".encode()
    )


def test_release_gets_keys_and_quorum_but_no_address(tmp_path: Path, vkey: str) -> None:
    text = f"witness w {vkey} http://127.0.0.1:1/\nquorum w\n"
    policy = with_log(read(tmp_path, text), LOG)
    assert policy.witnesses[0].url == "http://127.0.0.1:1/"
    public = render_policy(without_urls(policy))
    assert b"http" not in public
    assert parse_policy(public) == without_urls(policy)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("log {log}\nquorum none\n", "STO-L003"),
        ("witness w {vkey} http://x/\n", "STO-L003"),  # no quorum line
        ("witness w {log} http://x/\nquorum w\n", "STO-L003"),  # a log's key
        ("witness w {vkey} ftp://x/\nquorum w\n", "STO-L003"),
        ("witness w {vkey} http://x:99999/\nquorum w\n", "STO-L003"),
        ("witness w {vkey} http://[::1/\nquorum w\n", "STO-L003"),
        ("witness w {vkey} http:///w\nquorum w\n", "STO-L003"),
        ("witness w {vkey}\nquorum w\n", "STO-L003"),
        ("witness w {vkey} http://x/\nquorum v\n", "STO-L003"),
    ],
)
def test_policy_that_cannot_work_is_refused_at_the_start(
    tmp_path: Path, vkey: str, lines: str, code: str
) -> None:
    with pytest.raises(StoiloError, match=code):
        read(tmp_path, lines.format(log=LOG, vkey=vkey))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoiloError, match="STO-L003"):
        read_witnesses(str(tmp_path / "nowhere"))


def test_log_cannot_be_its_own_witness(tmp_path: Path) -> None:
    key = LogKey("log.test/t")
    twin = render_vkey(private_vkey("w.test", KeyType.COSIGNATURE, key._private))
    policy = read(tmp_path, f"witness w {twin} http://x/\nquorum w\n")
    with pytest.raises(StoiloError, match="STO-L003"):
        with_log(policy, key.vkey)
    assert with_log(policy, LogKey("log.test/t", b"\1" * 32).vkey).logs  # control
