import os
from pathlib import Path

from click.testing import CliRunner, Result

from stoilo.cli.main import cli
from stoilo.core.errors import StoiloError
from stoilo.signer.boinckeys import (
    check_boinc_signature,
    md5_hex,
    parse_boinc_public,
)
from stoilo.signer.offlinekeys import create_key, render_public_file
from tests.support.stage import EASY, PASSPHRASE


def run(tmp_path: Path, new_role: str = "boinc") -> Result:
    old, _ = create_key("boinc", "old", PASSPHRASE, hardness=EASY)
    _, new = create_key(new_role, "new", PASSPHRASE, hardness=EASY)
    (tmp_path / "old.key").write_bytes(old)
    (tmp_path / "new.pub").write_bytes(render_public_file(new))
    out, into = os.pipe()
    os.write(into, PASSPHRASE.encode())
    os.close(into)
    try:
        return CliRunner().invoke(
            cli,
            [
                "release",
                "boinc-change",
                "--old",
                str(tmp_path / "old.key"),
                "--new",
                str(tmp_path / "new.pub"),
                "--output",
                str(tmp_path / "keys"),
                "--passphrase-fd",
                str(out),
            ],
        )
    finally:
        os.close(out)


def test_old_key_vouches_for_the_new_one(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    texts = {path.name: path.read_text() for path in (tmp_path / "keys").iterdir()}
    old = parse_boinc_public(texts["old_key_0"])
    stripped = texts["code_sign_public"].strip().encode()
    check_boinc_signature(md5_hex(stripped), texts["signature_stripped_0"], old)


def test_key_of_another_role_is_no_successor(tmp_path: Path) -> None:
    result = run(tmp_path, "root")
    assert isinstance(result.exception, StoiloError)
    assert not (tmp_path / "keys").exists()
