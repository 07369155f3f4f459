from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from stoilo.cli.boinc import programs as boinc_programs
from stoilo.cli.main import main
from stoilo.signer.development.changes import PublishedPrograms, project_root
from stoilo.signer.development.root import create_development_root
from tests.support.gate import INSTALLED, NOW
from tests.support.slots import built_for
from tests.support.stage import make_verifier, write_build

ORIGIN = "project.example/log"


@pytest.fixture
def data(tmp_path):
    keys = tmp_path / "data" / "keys"
    create_development_root(keys, ORIGIN, NOW, installed=INSTALLED)
    built = replace(built_for(project_root(keys), origin=ORIGIN), version="0.1")
    write_build(tmp_path / "build", make_verifier(tmp_path / "verifier", built))
    return tmp_path / "data"


def programs(data, *more):
    return main(["boinc", "programs", "--data", str(data), *map(str, more)])


def test_build_is_published_and_signed(data, tmp_path, capsys):
    assert programs(data, "--from", tmp_path / "build", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown["signed"]) <= set(shown["targets"])
    for name in shown["signed"]:
        assert (data / "keys" / "boinc" / f"{name}.sig").exists()


def test_directory_without_a_root_is_told_to_start_the_server(tmp_path, capsys):
    assert programs(tmp_path / "none") == 2
    said = capsys.readouterr().err
    assert "STO-K093" in said
    assert "stoilo up" in said


def test_new_root_is_made_in_a_fresh_directory_and_kept(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(
        boinc_programs, "_build", lambda keys, *_: built.append(project_root(keys))
    )
    monkeypatch.setattr(
        boinc_programs, "publish_programs", lambda *_: PublishedPrograms((), ())
    )
    for _ in range(2):
        assert programs(tmp_path / "fresh", "--new") == 0
    assert built[0] == built[1]


def test_released_project_is_told_of_the_ceremony(tmp_path, capsys):
    state = tmp_path / "keys" / "state"
    state.mkdir(parents=True)
    (state / "requested.json").write_text("{}")
    assert programs(tmp_path) == 2
    said = capsys.readouterr().err
    assert "STO-K091" in said
    assert "release request" in said


def test_flavors_of_a_finished_build_cannot_be_chosen(data, tmp_path, capsys):
    words = ("--from", tmp_path / "build", "--flavor", "pure")
    assert programs(data, *words) == 2
    assert "STO-U003" in capsys.readouterr().err
