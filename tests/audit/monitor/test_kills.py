"""Kill -9 of a monitor at any moment: each match is told at least once, none is lost."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.log.sequencer import Sequencer
from stoilo.core.digests import content_digest
from tests.support.faulty_log import LogKey

pytestmark = pytest.mark.slow
KEY = LogKey("log.test/t")
LEAVES = 20_000
EACH = 97
ROUNDS = 25


def leaf(number: int) -> bytes:
    digest = content_digest(b"%d" % number)
    return render_leaf(Leaf(LeafKind.ADMISSION, digest, "1", number))


def grow(data_dir: Path, start: int, end: int) -> None:
    with Sequencer.open(data_dir, KEY.origin, KEY.sign, policy=KEY.policy) as log:
        log.append_many([leaf(number) for number in range(start, end)])


def run(data_dir: Path, state: Path, life_s: float | None) -> tuple[int, set[int]]:
    """Run the monitor, kill it after `life_s`; return its end and the leaves it told."""
    command = [sys.executable, "-m", "stoilo", "audit", "monitor", str(data_dir)]
    watched = data_dir.with_name("watched")
    digests = [content_digest(b"%d" % number) for number in range(0, LEAVES, EACH)]
    watched.write_text("".join(f"digest:{one}\n" for one in digests))
    given = f"--policy {KEY.vkey} --state {state} --watch @{watched} --once --json"
    given += " --explain-within 2000000000"
    process = subprocess.Popen([*command, *given.split()], stdout=subprocess.PIPE)
    if life_s is not None:
        time.sleep(life_s)
        process.send_signal(signal.SIGKILL)
    lines = process.communicate(timeout=120)[0].split(b"\n")
    told = [json.loads(line) for line in lines[:-1]]
    return process.returncode, {one["place"] for one in told if one["kind"] == "match"}


def test_no_match_is_lost_to_kills(tmp_path: Path) -> None:
    chance = random.Random(4)
    data_dir, state = tmp_path / "data", tmp_path / "state"
    told: set[int] = set()
    killed = 0
    step = LEAVES // ROUNDS
    for number in range(ROUNDS):
        grow(data_dir, number * step, (number + 1) * step)
        if number == 0:
            began = time.monotonic()
            run(data_dir, tmp_path / "other", None)
            usual = time.monotonic() - began  # of this machine, at this moment
        code, found = run(data_dir, state, usual * chance.uniform(0.4, 1.2))
        killed += code == -signal.SIGKILL
        usual *= 0.8 if code == 0 else 1.0  # the machine has become faster
        told |= found
    code, found = run(data_dir, state, None)
    assert (code, killed > 0) == (0, True)
    assert told | found == set(range(0, LEAVES, EACH))
