import json
from pathlib import Path

import pytest

from stoilo.cli.main import main

LISTING = (
    "requirements:\n  - cloudpickle==3.1.1\n  - numpy==2.2.5\n  - torch==2.7.0\n"
    "  - torchvision==0.22.0\nmodules:\n  - cloudpickle\n  - numpy\n  - torch\n"
    "  - torchvision\n"
)
MD5 = "44814764c91bf9ef426c4aa899df974f"


@pytest.fixture
def listing(tmp_path: Path) -> str:
    path = tmp_path / "dependencies.yaml"
    path.write_bytes(LISTING.encode())
    return str(path)


def test_id_prints_sha256_and_the_thesis_md5(listing: str, capsys) -> None:
    assert main(["flavor", "id", listing]) == 0
    out, err = capsys.readouterr()
    sha, md5 = out.splitlines()
    assert sha.startswith("sha256 ")
    assert len(sha.split()[1]) == 64
    assert md5 == f"md5 {MD5}"
    assert err == ""


def test_id_as_json(listing: str, capsys) -> None:
    assert main(["flavor", "id", listing, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["md5"] == MD5


def test_id_of_another_file_notes_that_it_is_no_manifest(tmp_path, capsys) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xff")
    assert main(["flavor", "id", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "md5 00594fd4f42ba43fc1ca0427a0576295" in out
    assert "STO-P003" in err


def test_missing_file_exits_2() -> None:
    assert main(["flavor", "id", "/no/such/file"]) == 2


@pytest.mark.parametrize(
    "arguments", [["show"], ["show", "--json"], ["show", "numeric"]]
)
def test_shipped_flavors_are_shown(arguments: list[str], capsys) -> None:
    assert main(["flavor", *arguments]) == 0
    assert "numpy==" in capsys.readouterr().out


def test_flavor_is_shown_with_its_libraries_and_their_level(capsys) -> None:
    assert main(["flavor", "show", "sklearn"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["level", "numeric"] in lines
    assert ["libraries", "scipy, sklearn"] in lines


def test_unknown_flavor_exits_2() -> None:
    assert main(["flavor", "show", "nothing"]) == 2
