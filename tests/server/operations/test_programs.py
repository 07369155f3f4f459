"""BOINC's programs are made when a client lacks them: once, beside the server, told of."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.server.data_directory import claim_directory
from stoilo.server.operations import programs
from stoilo.server.operations.programs import (
    BEING_MADE,
    NOT_MADE,
    ProgramMaking,
    light_flavors,
)
from stoilo.server.release.flavors import Offered

PURE = Offered("pure", "1" * 64, "1" * 32, "pure")
NUMERIC = Offered("numeric", "2" * 64, "2" * 32, "numeric")
TENSOR = Offered("tensor", "3" * 64, "3" * 32, "tensor")


class StandIn:
    """Takes the place of `python -m stoilo` with a program of its own."""

    def __init__(self, place, monkeypatch, program):
        folder = place / "modules"
        folder.mkdir()
        text = f"import os, pathlib, sys, time\nhere = pathlib.Path({str(place)!r})\n"
        (folder / "standin.py").write_text(text + program)
        monkeypatch.setattr(programs, "MODULE", "standin")
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.setattr(programs, "find_spec", lambda _name: None)


@pytest.fixture
def home(tmp_path):
    found = claim_directory(tmp_path / "data")
    yield found
    found.lock.close()


def finish(making, wait_until):
    """Do what the main thread does until nothing is under way."""

    def ended():
        making.check()
        return making._child is None

    wait_until(ended)


def test_nothing_is_made_before_somebody_asks(home):
    making = ProgramMaking(home, lambda: pytest.fail("nobody asked"))
    making.check()
    assert not (home.path / "logs").exists()


def test_asked_for_they_are_made_once_and_told_of(
    home, tmp_path, monkeypatch, wait_until, caplog
):
    program = (
        "with (here / 'ran').open('a') as f: f.write(' '.join(sys.argv[1:]) + '\\n')"
    )
    StandIn(tmp_path, monkeypatch, program)
    making = ProgramMaking(home, lambda: (PURE, NUMERIC, TENSOR))
    assert making.lack() == (BEING_MADE, 60.0)
    finish(making, wait_until)
    making.check()
    words = "--yes --flavor pure --flavor numeric"
    ran = (tmp_path / "ran").read_text()
    assert ran == f"boinc programs --data {home.path} {words}\n"
    said = [record.getMessage() for record in caplog.records]
    assert ["freezing" in said[0], "have their programs" in said[1]] == [True, True]
    assert not (home.path / "run" / "programs").exists()


def test_failure_is_said_with_its_reason_and_not_repeated(
    home, tmp_path, monkeypatch, wait_until, caplog
):
    StandIn(tmp_path, monkeypatch, "sys.exit('there is no compiler')")
    making = ProgramMaking(home, lambda: (PURE,))
    making.lack()
    finish(making, wait_until)
    assert "there is no compiler" in caplog.records[-1].getMessage()
    assert making.lack() == (NOT_MADE, 600.0)
    count = len(caplog.records)
    making.check()
    assert (making._child, len(caplog.records)) == (None, count)


def test_stop_ends_what_it_has_started_too(home, tmp_path, monkeypatch, wait_until):
    program = (
        "child = os.fork()\n"
        "name = 'inner' if child == 0 else 'outer'\n"
        "(here / name).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    StandIn(tmp_path, monkeypatch, program)
    making = ProgramMaking(home, lambda: (PURE,))
    making.lack()
    making.check()
    marks = [tmp_path / "inner", tmp_path / "outer"]
    wait_until(lambda: all(mark.exists() and mark.read_text() for mark in marks))
    making.stop()
    stats = [Path(f"/proc/{mark.read_text()}/stat") for mark in marks]
    wait_until(lambda: all(map(has_ended, stats)))


def has_ended(stat):
    """Whether a process is gone, or only its end is left to be seen."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_stands_behind_what_serves(home, tmp_path, monkeypatch, wait_until):
    program = "(here / 'nice').write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))"
    StandIn(tmp_path, monkeypatch, f"time.sleep(1)\n{program}")
    making = ProgramMaking(home, lambda: (PURE,))
    making.lack()
    began = time.monotonic()
    making.check()
    assert time.monotonic() - began < 60  # it does not wait for the end
    finish(making, wait_until)
    assert (tmp_path / "nice").read_text() == str(programs.NICENESS)
    assert os.getpriority(os.PRIO_PROCESS, 0) != programs.NICENESS


@pytest.mark.parametrize(
    ("offered", "torch", "names"),
    [
        ((PURE, NUMERIC), False, ("pure", "numeric")),
        ((PURE, NUMERIC, TENSOR), False, ("pure", "numeric")),
        ((PURE, NUMERIC, TENSOR), True, ()),
        ((PURE, NUMERIC), True, ("pure", "numeric")),
        ((PURE, replace(NUMERIC, libraries=("any",))), False, ()),
    ],
)
def test_what_is_large_is_the_operators_to_choose(monkeypatch, offered, torch, names):
    monkeypatch.setattr(programs, "find_spec", lambda _name: torch or None)
    assert light_flavors(offered) == names


def test_operator_who_has_to_choose_is_told_how(home, monkeypatch, caplog):
    monkeypatch.setattr(programs, "find_spec", lambda _name: True)
    making = ProgramMaking(home, lambda: (PURE, TENSOR))
    making.lack()
    making.check()
    assert f"stoilo boinc programs --data {home.path}" in caplog.text
    assert making.lack() == (NOT_MADE, 600.0)
