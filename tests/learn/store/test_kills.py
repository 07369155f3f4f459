"""kill -9 of the process that keeps the shards, before each of its SQL statements.

What was acknowledged is there afterwards, and a push that is sent again counts once.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.learn.store.server import ParameterServer

PROGRAMS = Path(__file__).parent / "programs"
PUSHES = 2
LIMIT_S = 240


def kill_rounds(folder, task, kind, step=1):
    found = subprocess.run(
        [
            *(sys.executable, str(PROGRAMS / "killed.py")),
            *(str(folder / "s"), task, kind, str(step)),
        ],
        capture_output=True,
        check=True,
        timeout=LIMIT_S,
        text=True,
    )
    rounds = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(rounds) > 15, "too few kills to say anything"
    return rounds


def lost(rounds):
    """The kills after which an acknowledged push was not there."""
    return [n for n, acks, kept, _ in rounds if min(kept) < acks]


def miscounted(rounds):
    """The kills after which the pushes, sent again, did not count once each."""
    return [n for n, _, _, end in rounds if set(end) != {PUSHES}]


@pytest.mark.slow
def test_killed_before_any_statement_of_a_push_each_push_counts_once(tmp_path):
    rounds = kill_rounds(tmp_path, "push", "careful")
    assert (lost(rounds), miscounted(rounds)) == ([], [])


@pytest.mark.slow
def test_killed_before_any_statement_of_a_move_each_key_is_there_once(tmp_path):
    rounds = kill_rounds(tmp_path, "move", "careful")
    assert (lost(rounds), miscounted(rounds)) == ([], [])


@pytest.mark.slow
def test_control_values_and_marks_in_two_transactions_count_twice(tmp_path):
    assert miscounted(kill_rounds(tmp_path, "push", "careless", 2))


@pytest.mark.slow
def test_control_acknowledging_before_writing_loses_pushes(tmp_path):
    assert lost(kill_rounds(tmp_path, "push", "hasty", 2))


def killed_after(folder, acknowledgements):
    """Let a process push without end; kill it when so many are acknowledged."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "pushing.py"), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(acknowledgements):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
    return acknowledgements + len([line for line in rest if line == "ok"])


def test_killed_in_full_flight_keeps_what_was_acknowledged(tmp_path):
    seen = 0
    for acknowledgements in (2, 7):
        seen += killed_after(tmp_path / "s", acknowledgements)
        store = ParameterServer.open(tmp_path / "s", 2)
        cells = store.read(["a", "b", "c"])
        store.close()
        counts = {int(cell.value) for cell in cells.values()}
        assert min(counts) >= seen
        assert max(counts) <= seen + 1, "only the push in flight may be there too"
        seen = min(counts)
