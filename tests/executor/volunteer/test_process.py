"""The volunteer's process: its words, signals, and being killed again and again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from stoilo.core.errors import DeniedError, UsageError
from stoilo.executor.volunteer.main import choose_opt_in, main
from stoilo.server.engines.interface import OutcomeKind
from tests.support.boincslot import is_running

CHILD = """
import sys, threading
from pathlib import Path
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.volunteer.transfer import Transfer
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.scheduler import Settings
from tests.support.engine import EchoExecutor
url, key, state = sys.argv[1:]
settings = Settings(url, key, backoff_s=(0.05, 0.3))
Volunteer(
    settings, Ledger(Path(state), url), Transfer(url), EchoExecutor(seconds=0.01)
).run()
"""

# Keeps something in its slot and hangs; where it finds that again it finishes.
TWICE = """#!/bin/sh
[ -e kept ] || { echo $$ > kept; exec sleep 600; }
name=$(sed -n 's:.*<result_name>\\(.*\\)</result_name>.*:\\1:p' init_data.xml)
printf '{"format":"stoilo-result/1","result":"%s","workunit":"w_1",' "$name" > result
printf '"disposition":"ran","frame_bytes":5}\\ntwice' >> result
printf 0 > boinc_finish_called
"""


def test_unknown_key_ends_the_volunteer_with_its_code(world):
    volunteer = world.build("a", key="0" * 32)
    with pytest.raises(DeniedError, match="STO-E016"):
        volunteer.run()
    volunteer.close()


def test_typed_level_only_lowers(monkeypatch, tmp_path):
    file, state = tmp_path / "optin.toml", tmp_path / "state"
    monkeypatch.setattr("stoilo.executor.volunteer.main.default_files", lambda: (file,))

    def choose(level):
        return choose_opt_in(state, max_level=level)

    assert (choose(None).max_level, choose("numeric").max_level) == ("pure", "pure")
    file.write_text('max_level = "pure"\n')
    assert choose("numeric").max_level == "pure"
    file.write_text('max_level = "tensor"\nrequire_review = true\n')
    chosen = choose("numeric")
    assert (chosen.max_level, chosen.require_review) == ("numeric", True)


def test_named_file_adds_to_the_others(monkeypatch, tmp_path):
    usual, named = tmp_path / "usual.toml", tmp_path / "named.toml"
    monkeypatch.setattr(
        "stoilo.executor.volunteer.main.default_files", lambda: (usual,)
    )
    with pytest.raises(UsageError, match="STO-A060"):
        choose_opt_in(tmp_path / "state", file=named)
    named.write_text('max_level = "tensor"\n')
    assert choose_opt_in(tmp_path / "state", file=named).max_level == "tensor"
    usual.write_text('max_level = "numeric"\n')
    assert choose_opt_in(tmp_path / "state", file=named).max_level == "numeric"


def test_frozen_volunteer_has_no_switch_for_root_or_level(monkeypatch, capsys):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    arguments = ["--project", "http://127.0.0.1:1/", "--key", "k", "--state", "x"]
    for more in (["--root", "x"], ["--max-level", "gpu"], ["--opt-in", "x"]):
        with pytest.raises(SystemExit):
            main(arguments + more)
    assert "unrecognized arguments" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--project", "ftp://x/", "--key", "k", "--root", "r"], "STO-U003"),
        (["--project", "http://x/", "--key", "@/none", "--root", "r"], "STO-U004"),
        (["--project", "http://x/", "--key", "k", "--root", "/none"], "STO-U004"),
    ],
)
def test_bad_argument_exits_2_with_its_code(tmp_path, capsys, arguments, code):
    assert main([*arguments, "--state", str(tmp_path)]) == UsageError.exit_code
    assert code in capsys.readouterr().err


def kill_volunteers(world, tmp_path, *, tasks, kills, seed):
    """Kill a volunteer again and again while it works; returns kills and outcomes."""
    key, draw = world.key("killed"), random.Random(seed)
    names = [f"w{number}_1" for number in range(tasks)]
    world.ask(*names)
    command = [sys.executable, "-c", CHILD, world.server.url, key, str(tmp_path / "k")]
    done = 0
    for _ in range(kills):
        child = subprocess.Popen(command)
        time.sleep(0.35 + draw.random())
        child.send_signal(signal.SIGKILL)
        child.wait()
        done += 1
    child = subprocess.Popen(command)
    try:
        kinds = world.wait(*names, seconds=150)
    finally:
        child.kill()
        child.wait()
    return done, kinds, names


def test_killed_volunteer_loses_no_copy(world, tmp_path):
    _, kinds, names = kill_volunteers(world, tmp_path, tasks=40, kills=3, seed=1)
    assert set(kinds) == {OutcomeKind.CANONICAL}
    for name in names:  # one copy each: nothing was lost, nothing given out twice
        assert len(world.engine.status(name).results) == 1
        assert world.outcomes.calls[name] == 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_volunteer_killed_many_times_loses_no_copy(world, tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    done, kinds, names = kill_volunteers(
        world, tmp_path, tasks=400, kills=25, seed=seed
    )
    assert done == 25
    assert set(kinds) == {OutcomeKind.CANONICAL}
    assert all(len(world.engine.status(name).results) == 1 for name in names)


def interrupt_while_waiting(stop, wait, rounds):
    """Run `wait` again and again while signals call `stop` here; returns the signals."""
    signals = []
    before = signal.signal(signal.SIGALRM, lambda *_: (signals.append(1), stop()))
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        for _ in range(rounds):
            wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return len(signals)


@pytest.mark.timeout(60)
def test_stop_from_a_signal_handler_never_blocks(world):
    volunteer = world.build("ann")

    def wait():
        volunteer._waking.stopping = False
        volunteer._waking.forget()
        volunteer._waking.wait(0.0005)

    assert interrupt_while_waiting(volunteer.stop, wait, rounds=3000) > 100
    volunteer.close()


def test_killed_volunteer_starts_its_task_in_the_same_slot(world, tmp_path, wait_until):
    launcher = tmp_path / "launcher"
    launcher.write_text(TWICE)
    launcher.chmod(0o755)
    (tmp_path / "stoilo-verifier.tar").write_bytes(b"archive")
    (tmp_path / "key").write_text(world.key("a"))
    state = tmp_path / "state"
    words = ["--project", world.server.url, "--key", f"@{tmp_path / 'key'}"]
    words += ["--state", str(state), "--launcher", str(launcher)]
    command = [sys.executable, "-m", "stoilo.executor.volunteer", *words]
    world.ask("w_1")
    first = subprocess.Popen(command)
    kept = state / "slots" / "0" / "kept"
    wait_until(lambda: kept.exists() and kept.read_text())
    first.kill()
    first.wait()
    wait_until(lambda: not is_running(int(kept.read_text())))
    second = subprocess.Popen(command)
    try:
        assert world.wait("w_1") == [OutcomeKind.CANONICAL]
    finally:
        second.terminate()
        assert second.wait() == 0
    assert world.outcomes.bodies["w_1"].endswith(b"\ntwice")
    assert len(world.engine.status("w_1").results) == 1
