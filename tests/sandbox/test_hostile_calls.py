"""Whatever a task can reach, called with objects that lie, gives out nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.sandbox.process.supervisor import zygote_environment

SCRIPT = Path(__file__).parent / "reachable" / "hostile.py"
ROOTS = {
    "LEAK collections.ChainMap.new_child()",
    "LEAK collections.Counter.copy()",
    "LEAK collections.UserList.copy()",
    "LEAK collections.UserString.upper()",
}


def call_everything(*arguments):
    """Return the roads found and how many calls were made."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=zygote_environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *roads, calls = done.stdout.splitlines()
    return set(roads), int(calls.removeprefix("called: "))


@pytest.mark.parametrize(("level", "least"), [("pure", 50_000), ("numeric", 100_000)])
def test_no_call_gives_out_type_power_or_runs_text(level, least):
    roads, calls = call_everything(level)
    assert roads == set()
    assert calls > least


@pytest.mark.slow
def test_no_call_of_tensor_gives_out_type_power_or_runs_text():
    assert call_everything("tensor")[0] == set()


def test_methods_as_libraries_made_them_give_out_the_real_type():
    assert call_everything("--unbound", "pure")[0] >= ROOTS


def test_text_that_is_run_is_seen():
    assert "RAN leaky.run_text" in call_everything("--control", "pure")[0]
