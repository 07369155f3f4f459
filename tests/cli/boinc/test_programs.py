from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from stoilo.cli.boinc import programs as boinc_programs
from stoilo.cli.main import main
from stoilo.server.release.flavors import installed_flavors
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
    assert programs(data, "--from", tmp_path / "build", "--json", "--yes") == 0
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
        assert programs(tmp_path / "fresh", "--new", "--yes") == 0
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


@pytest.fixture
def nothing_built(monkeypatch):
    """Building and publishing are skipped; a list of the flavors that were asked for."""
    asked = []
    monkeypatch.setattr(
        boinc_programs, "_build", lambda _keys, _out, flavors: asked.extend(flavors)
    )
    monkeypatch.setattr(
        boinc_programs, "publish_programs", lambda *_: PublishedPrograms((), ())
    )
    return asked


def test_what_is_switched_off_is_named_before_anything_is_built(
    data, capsys, nothing_built
):
    assert programs(data, "--flavor", "pure") == 2
    said = capsys.readouterr().err
    assert ("numeric (level numeric)" in said, "--yes" in said) == (True, True)
    assert nothing_built == []


def test_yes_goes_on_and_still_names_it(data, capsys, nothing_built):
    assert programs(data, "--flavor", "pure", "--yes") == 0
    assert "numeric (level numeric)" in capsys.readouterr().err
    assert nothing_built == ["pure"]


def test_where_all_is_frozen_nothing_is_asked(data, capsys, nothing_built):
    every = [one.name for one in installed_flavors()]
    words = [word for name in every for word in ("--flavor", name)]
    assert programs(data, *words) == 0
    assert (capsys.readouterr().err, nothing_built) == ("", every)


@pytest.mark.usefixtures("nothing_built")
def test_project_that_publishes_flavors_loses_none_and_is_not_asked(
    data, monkeypatch, capsys
):
    monkeypatch.setattr(boinc_programs, "publishes_flavors", lambda _keys: True)
    assert programs(data, "--flavor", "pure") == 0
    assert capsys.readouterr().err == ""
