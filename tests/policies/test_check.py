import subprocess
import sys

import pytest

from stoilo.core.errors import UsageError
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.jailed import check_in_child


@pytest.mark.parametrize("source", [b"def f(d): return 1\n", b"\xff", b"import os"])
def test_child_gives_the_verdict_of_the_gate(source: bytes) -> None:
    assert check_in_child(GateRequest(source)) == judge(GateRequest(source))


def test_unknown_level_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="STO-P002"):
        check_in_child(GateRequest(b"", level="root"))


def test_check_that_takes_too_long_is_a_refusal() -> None:
    verdict = check_in_child(GateRequest(b"def f(d): return 1"), wall_s=0.001)
    assert [one.code for one in verdict.findings] == ["STO-P054"]


def test_child_answers_garbage_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "stoilo.policies.jailed"],
        input=b"\xffgarbage",
        capture_output=True,
        check=True,
    )
    assert b"STO-P005" in done.stdout
    assert done.stderr == b""
