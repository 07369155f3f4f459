"""Training programs through both layers give what plain torch gives, bit for bit.

The plain runs happen in one process of their own with a zygote's settings and
environment: same instructions, one thread, no code generation.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunStatus
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import zygote_environment

TESTS = Path(__file__).parents[1]
PROGRAMS = sorted((TESTS / "attack" / "cases" / "benign_tensor").glob("*.py"))
NEEDED = {"resnet18", "transformer_reversal", "lstm_waves", "vae", "own_optimizer"}


@pytest.fixture(scope="module")
def plain_answers():
    """Program → its answer and output in plain torch."""
    command = [
        sys.executable,
        str(TESTS / "sandbox/programs/plain_torch.py"),
        *PROGRAMS,
    ]
    done = subprocess.run(
        command, env=zygote_environment(), capture_output=True, check=True, text=True
    )
    lines = map(json.loads, done.stdout.splitlines())
    return {
        line["name"]: (bytes.fromhex(line["value"]), line["output"]) for line in lines
    }


def test_there_are_enough_programs():
    assert len(PROGRAMS) >= 25
    assert {path.stem for path in PROGRAMS} >= NEEDED


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_training_gives_the_very_same_in_the_jail(tensor_jail, plain_answers, path):
    source = path.read_text(encoding="utf-8")
    request = TaskRequest(source, "run", skeleton.encode({}), now=1_700_000_000)
    outcome = run_task(tensor_jail, request, load_level("tensor").default_limits())
    assert outcome.status is RunStatus.OK, outcome
    assert (outcome.value, outcome.output) == plain_answers[path.stem]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_gate_picks_tensor_as_the_lowest_level(path):
    request = GateRequest(path.read_bytes(), entry="run")
    verdict = judge(request)
    assert (verdict.admitted, verdict.lowest_level) == (True, "tensor"), (
        verdict.findings
    )
