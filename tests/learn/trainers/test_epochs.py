"""The file of epochs: what a crash or a foreign hand leaves of it."""

import os

import pytest

from stoilo.core.errors import TrustError
from stoilo.learn.trainers.epochs import NAME, EpochLog, EpochMetrics

EPOCHS = [EpochMetrics(n, 0.5, 10, 2, 0, 0.0) for n in range(3)]


@pytest.fixture
def log(tmp_path):
    made = EpochLog(tmp_path)
    for metrics in EPOCHS:
        made.append(metrics)
    return made


def test_epochs_are_read_as_they_were_written(log):
    assert log.read() == EPOCHS


def test_line_that_is_cut_off_is_taken_away(log, tmp_path):
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole + b'{"epoch": 3, \xff')
    assert log.read() == EPOCHS
    assert (tmp_path / NAME).read_bytes() == whole


def test_epochs_beyond_what_the_checkpoint_knows_are_taken_away(log):
    assert log.read(2) == EPOCHS[:2]
    assert log.read() == EPOCHS[:2]


@pytest.mark.parametrize("line", [b"\xff\xfe{}", b"[" * 200_000, b"{}", b"no", b""])
def test_line_that_is_none_is_refused_and_the_file_stays(log, tmp_path, line):
    damaged = (tmp_path / NAME).read_bytes() + line + b"\n{}"
    (tmp_path / NAME).write_bytes(damaged)
    with pytest.raises(TrustError, match="STO-T011"):
        log.read()
    assert (tmp_path / NAME).read_bytes() == damaged


def test_repair_never_empties_the_file_first(log, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "truncate", fail)
    with pytest.raises(KeyboardInterrupt):
        log.read(1)
    assert log.read() == EPOCHS
