"""Errno mode: a denied call fails, the program goes on, and only a probe may have it."""

import pytest
from click.testing import CliRunner

from stoilo.cli.main import cli
from stoilo.core.errors import InternalError
from stoilo.core.types import RunStatus
from stoilo.sandbox.kernel.filters import Denied
from stoilo.sandbox.process.channel import PROBE_JOB, TASK_JOB
from stoilo.sandbox.process.run import probe_source
from stoilo.sandbox.process.supervisor import Jail

CALLS = """
import os
def attempt(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return "REACHED"
print(attempt(os.fork), attempt(lambda: os.kill(os.getppid(), 9)),
      attempt(lambda: open("/etc/passwd")), attempt(lambda: os.mkdir("/tmp/new")))
"""
EPERM, EACCES = 1, 13


def test_errno_mode_lets_the_program_go_on_after_each_denied_call(pure):
    outcome = probe_source(CALLS, pure, denied=Denied.ERRNO)
    assert outcome.status is RunStatus.OK
    assert outcome.output.split() == [str(n) for n in (EPERM, EPERM, EACCES, EPERM)]


def test_kill_mode_ends_the_same_program_at_its_first_call(pure):
    outcome = probe_source(CALLS, pure)
    assert (outcome.status, outcome.output) == (RunStatus.KILLED, "")


@pytest.mark.parametrize("job", [TASK_JOB, "stoilo.sandbox.process.validate_job"])
def test_errno_mode_is_refused_for_every_other_job(pure, job):
    with pytest.raises(InternalError, match="for probes only") as caught:
        Jail(pure, job, denied=Denied.ERRNO)
    assert caught.value.code == "STO-S003"


def test_one_process_keeps_the_filters_of_both_modes_apart(pure):
    """The cache of built filters must not hand one mode's to the other."""
    for denied, status in ((Denied.ERRNO, "ok"), (Denied.KILL, "killed")) * 2:
        assert probe_source(CALLS, pure, denied=denied).status == status
    with Jail(pure, PROBE_JOB) as jail:
        assert jail.layers


@pytest.mark.parametrize(("mode", "code"), [("errno", 0), ("kill", 4)])
def test_command_takes_the_mode(tmp_path, mode, code):
    path = tmp_path / "calls.py"
    path.write_text(CALLS)
    words = ["sandbox", "probe", str(path), "--denied", mode]
    assert CliRunner().invoke(cli, words, standalone_mode=False).return_value == code
