import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stoilo.cli.main import cli
from stoilo.core.errors import StoiloError
from stoilo.signer.attestations import read_attestation
from stoilo.signer.offline_keys import create_key, open_key
from tests.support.stage import EASY, PASSPHRASE, make_flavor, write_build


@pytest.fixture
def build(tmp_path: Path) -> Path:
    write_build(tmp_path / "build", make_flavor(tmp_path / "made", "pure", 3))
    return tmp_path / "build"


def run(build: Path, key: Path, *more: str) -> Result:
    out, into = os.pipe()
    os.write(into, PASSPHRASE.encode())
    os.close(into)
    try:
        return CliRunner().invoke(
            cli,
            [
                "release",
                "sign",
                str(build),
                "--key",
                str(key),
                "--passphrase-fd",
                str(out),
                *more,
            ],
        )
    finally:
        os.close(out)


def new_key(folder: Path, role: str) -> Path:
    data, _ = create_key(role, "bea", PASSPHRASE, hardness=EASY)
    (folder / "bea.key").write_bytes(data)
    return folder / "bea.key"


def test_builder_attests_what_he_built(build: Path, tmp_path: Path) -> None:
    key = new_key(tmp_path, "builder")
    result = run(build, key, "--output", str(tmp_path / "ceremony"), "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["attested"]
    path = Path(row["file"])
    assert path.is_relative_to(tmp_path / "ceremony" / "builds" / "pure")
    public = open_key(key.read_bytes(), PASSPHRASE).ed25519().public
    assert read_attestation(path.read_bytes(), [public]).part.part == "pure"


def test_attesting_twice_finds_no_builds_in_its_own_files(
    build: Path, tmp_path: Path
) -> None:
    key = new_key(tmp_path, "builder")
    assert run(build, key).exit_code == 0
    assert run(build, key).exit_code == 0


def test_key_of_another_role_attests_nothing(build: Path, tmp_path: Path) -> None:
    result = run(build, new_key(tmp_path, "targets"))
    assert isinstance(result.exception, StoiloError)
    assert result.exception.code == "STO-U003"
    assert not (build / "builds").exists()
