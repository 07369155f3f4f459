"""Result files with forged headers and frames, sent by a volunteer of a running server.

Every task needs three results: two honest hosts and the forger. Whatever it sends is one
invalid copy with a stable code; an honest copy in its place would still be accepted.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from stoilo.core.rpc import tasks_pb2 as pb
from tests.support.wire import DOUBLE

FORGER = Path(__file__).parent / "programs" / "forger.py"
pytestmark = pytest.mark.usefixtures("forger")
THREE = pb.RedundancyOptions(
    min_quorum=3,
    target_results=3,
    max_error=3,
    max_total=6,
    max_success=4,
    delay_bound_s=600,
)
CODES = {
    "admission": "STO-R081",
    "attempt": "STO-R081",
    "result": "STO-R081",
    "workunit": "STO-R081",
    "flavor": "STO-R081",
    "code": "STO-R082",
    "no_header": "STO-X020",
    "empty": "STO-X020",
    "long_header": "STO-X020",
    "duplicate_keys": "STO-X020",
    "deep_header": "STO-X020",
    "lengths": "STO-X020",
    "negative": "STO-X020",
    "pickle": "STO-D002",
    "cut_frame": "STO-D002",
    "list": "STO-R081",
    "status_list": "STO-R081",
    "status_word": "STO-R081",
    "pickled_value": "STO-D002",
    "no_value": "STO-R081",
}


@pytest.fixture(scope="module")
def forger(target, tmp_path_factory):
    state = tmp_path_factory.mktemp("forger")
    key_file = state / "key"
    key_file.write_text(target.deployment.account("forger@example.org"))
    root = target.data / "keys" / "root.json"
    words = ["--project", target.project, "--key", f"@{key_file}"]
    with (state / "forger.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(FORGER), *words, "--state", str(state / "host"),
             "--root", str(root)],
            stdout=log,
            stderr=log,
        )  # fmt: skip
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, (state / "forger.log").read_text()
    assert "Traceback" not in (state / "forger.log").read_text()


def invalid_copies(target, tasks, seconds=90):
    """Return the code of each task's first invalid copy."""
    found = {}
    deadline = time.monotonic() + seconds
    while len(found) < len(tasks) and time.monotonic() < deadline:
        for name, task_id in tasks.items():
            for copy in target.client.poll(task_id).copies:
                if copy.outcome == "invalid":
                    found[name] = copy.code
        time.sleep(0.2)
    return found


def forge(target, names):
    """Return the codes of some forgeries and the states of their tasks."""
    tasks = {
        name: target.client.submit(
            task_module=b"# forge %s\n" % name.encode() + DOUBLE, redundancy=THREE
        )
        for name in names
    }
    found = invalid_copies(target, tasks)
    states = {target.client.poll(task_id).state for task_id in tasks.values()}
    for task_id in tasks.values():
        assert target.client.cancel(task_id).status == "OK"
    return found, states


def test_every_forgery_is_one_invalid_copy_with_its_code(target):
    traces, names = target.tracebacks(), list(CODES)
    for some in (names[start : start + 5] for start in range(0, len(names), 5)):
        codes = {name: CODES[name] for name in some}
        assert forge(target, some) == (codes, {"running"})
        honest = target.client.submit(redundancy=THREE)  # ends the row of bad results
        assert target.client.wait(honest).state == "succeeded"
    assert target.tracebacks() == traces


def test_hostile_output_of_an_agreeing_copy_is_text(target):
    source = b"# forge output\n" + DOUBLE
    answer = target.client.wait(
        target.client.submit(task_module=source, redundancy=THREE)
    )
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)


def test_same_volunteer_without_a_forgery_is_believed(target):
    """The negative control: the forgeries are what the server refused."""
    answer = target.client.wait(target.client.submit(redundancy=THREE))
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)
    assert [copy.outcome for copy in answer.copies] == ["success"] * 3
