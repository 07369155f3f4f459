import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoilo.cli.main import cli
from stoilo.core.errors import StoiloError
from stoilo.core.levels import load_levels
from stoilo.executor.verifier.trust import InstalledRelease
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST
from tests.support.stage import ReleaseStage


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    installed = InstalledRelease(load_levels(), LANGUAGE_DIGEST)
    stage = ReleaseStage(now=int(time.time()), installed=installed)
    release = folder / "release"
    stage.publish(release, stage.first_ceremony())
    files = stage.make_parts(folder / "parts", stage.root(release), "pure")
    second = stage.next_ceremony(release, stage.put(files))
    stage.publish(release, replace(second, builds=stage.attest(files)))
    return release


def test_person_reads_who_signed_and_who_built(release: Path) -> None:
    result = CliRunner().invoke(cli, ["release", "verify", str(release)])
    assert result.exit_code == 0, result.output
    assert "root        version 1" in result.stdout
    assert "signed by ada, bo" in result.stdout
    assert "built equal by bea, ben" in result.stdout
    assert "In the log: leaf 1 of 2." in result.stdout
    assert "compare it, or pass --root" in result.stdout


def test_machine_reads_the_same(release: Path) -> None:
    root = release / "root.json"
    result = CliRunner().invoke(
        cli, ["release", "verify", str(release), "--root", str(root), "--json"]
    )
    document = json.loads(result.stdout)
    assert document["verified"]
    assert document["root_given"]
    assert document["boinc_signed"]
    assert document["roles"][0]["role"] == "root"
    assert [part["builders"] for part in document["parts"]] == [["bea", "ben"]] * 3


def test_tampered_release_ends_with_4(release: Path) -> None:
    path = release / "boinc" / "key.pub"
    kept = path.read_bytes()
    path.write_bytes(kept.upper())
    try:
        result = CliRunner().invoke(cli, ["release", "verify", str(release), "--json"])
        raised = CliRunner().invoke(cli, ["release", "verify", str(release)]).exception
    finally:
        path.write_bytes(kept)
    assert result.exit_code == 4
    assert json.loads(result.stdout)["error"]["code"] == "STO-K076"
    assert isinstance(raised, StoiloError)


def test_place_without_release_ends_with_2(tmp_path: Path) -> None:
    assert (
        CliRunner()
        .invoke(cli, ["release", "verify", str(tmp_path), "--json"])
        .exit_code
        == 2
    )


def test_address_that_does_not_answer_ends_with_7() -> None:
    arguments = ["http://127.0.0.1:1/release", "--json"]
    assert CliRunner().invoke(cli, ["release", "verify", *arguments]).exit_code == 7
