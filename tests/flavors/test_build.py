from __future__ import annotations

import shutil

import pytest

from stoilo.cli.main import main
from stoilo.core.errors import StoiloError
from stoilo.flavors.build import check_flavor
from stoilo.flavors.described import flavor_level
from stoilo.flavors.freeze import build_environment, make_empty, run_logged
from stoilo.flavors.lock import clean_environment
from stoilo.flavors.manifest import (
    find_flavor,
    parse_manifest,
    shipped_flavors,
    shipped_manifest,
)

LISTING = (
    b"requirements:\n  - cloudpickle==3.1.1\n  - numpy==2.2.5\n  - torch==2.7.0\n"
    b"  - torchvision==0.22.0\nmodules:\n  - cloudpickle\n  - numpy\n  - torch\n"
    b"  - torchvision\n"
)
LISTING_MD5 = "44814764c91bf9ef426c4aa899df974f"


def code_of(function, *arguments):
    with pytest.raises(StoiloError) as caught:
        function(*arguments)
    return caught.value.code


def test_listing_of_the_thesis_runs_on_torchvision():
    assert find_flavor(LISTING_MD5) is find_flavor("torchvision")


def test_listing_of_the_thesis_is_not_built_and_cloudpickle_is_named(tmp_path, capsys):
    path = tmp_path / "dependencies.yaml"
    path.write_bytes(LISTING)
    output = tmp_path / "out"
    assert main(["flavor", "build", str(path), "--output", str(output)]) == 3
    err = capsys.readouterr().err
    assert "STO-F009" in err
    assert "cloudpickle" in err
    assert not output.exists()


@pytest.mark.parametrize("name", ["dill", "joblib", "CloudPickle"])
def test_no_flavor_holds_a_library_that_unpickles(name):
    text = f"requirements:\n  - {name}==1.0\nmodules: []\n"
    assert code_of(check_flavor, parse_manifest(text.encode())) == "STO-F009"


@pytest.mark.parametrize("name", ["pure", "numeric", "tensor"])
def test_shipped_flavor_is_bound_to_the_level_of_its_name(name):
    assert flavor_level(find_flavor(name)) == name


def test_flavor_that_nothing_describes_is_refused_with_what_to_do():
    manifest = parse_manifest(b"requirements:\n  - x==1\nmodules:\n  - numpy\n  - x\n")
    with pytest.raises(StoiloError, match=r"lets in: x .*flavor describe") as caught:
        check_flavor(manifest)
    assert caught.value.code == "STO-P062"


@pytest.mark.parametrize("flavor", shipped_flavors(), ids=lambda flavor: flavor.name)
def test_manifest_of_a_shipped_flavor_has_its_digest(flavor):
    assert parse_manifest(shipped_manifest(flavor)).digest == flavor.digest


def test_output_that_is_not_empty_is_refused(tmp_path, capsys):
    (tmp_path / "old").write_bytes(b"")
    assert code_of(make_empty, tmp_path) == "STO-U003"
    assert main(["flavor", "build", "pure", "--output", str(tmp_path)]) == 2
    assert "STO-U003" in capsys.readouterr().err


def test_own_manifest_needs_its_own_lock(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"requirements:\n  - numpy==1.0\nmodules:\n  - numpy\n")
    output = str(tmp_path / "out")
    assert main(["flavor", "build", str(path), "--output", output]) == 2
    assert "STO-F007" in capsys.readouterr().err


def test_interpreter_of_another_version_is_refused(tmp_path, capsys):
    if shutil.which("strip") is None:
        pytest.skip("needs binutils")
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 3.9\n")
    fake.chmod(0o755)
    words = ["--output", str(tmp_path / "out"), "--python", str(fake)]
    assert main(["flavor", "build", "pure", *words]) == 1
    assert "STO-F011" in capsys.readouterr().err


def test_failed_program_is_told_by_its_last_line_and_its_own_code(tmp_path):
    log = tmp_path / "log"
    script = "echo first; echo 'missing modules: x [STO-F012]'; exit 3"
    with pytest.raises(StoiloError, match="missing modules: x") as caught:
        run_logged(["sh", "-c", script], log, "STO-F011", "freezing", {"PATH": "/bin"})
    assert caught.value.code == "STO-F012"
    assert "first" in log.read_text()


def test_build_environment_is_the_same_for_everybody(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    made = build_environment(tmp_path, (tmp_path / "source",))
    assert "/elsewhere" not in " ".join(made.values())
    assert (made["SOURCE_DATE_EPOCH"], made["PYTHONHASHSEED"]) == ("315532800", "0")
    assert "PYTHONPATH" not in clean_environment()
