"""From an account file to a validated result, by Debian's unmodified client."""

from __future__ import annotations

import os

import pytest

from stoilo.core.codec.skeleton import decode
from tests.support.boincpackage import BOINC, BOINCCMD, installed_md5, packaged_md5
from tests.support.boincproject import BoincProject
from tests.support.jailwatch import jailed

pytestmark = pytest.mark.timeout(1800)  # freezing included
ROUNDS = 60_000_000  # some seconds, to look at the jail from outside


def test_unmodified_client_runs_a_task_in_the_full_jail(project: BoincProject) -> None:
    for program in (BOINC, BOINCCMD):
        assert installed_md5(program) == packaged_md5(program)
    task = project.submit(arguments={"rounds": ROUNDS})
    with project.client() as client:
        pid, status = client.wait_for(lambda: next(jailed(client), None))
        assert set(status["Uid"].split()) == {str(client.user.pw_uid)}
        assert status["NoNewPrivs"] == "1"
        assert int(status["CapEff"], 16) == 0
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        assert isinstance(decode(project.wait(task, client).value), int)
        client.wait_for(lambda: not client.tasks())  # acknowledged
        client.wait_for(lambda: float(client.field("host_total_credit") or 0) > 0)
