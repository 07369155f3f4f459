"""A task whose language layer is broken, inside a real client: the kernel layer holds.

The runtime was frozen with a way out (`tests.support.brokenruntime`), so a task runs any
Python code. What it tries is refused, or ends it; the client goes on.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from stoilo.core.rpc import tasks_pb2 as pb
from tests.support.boinc import BoincClient
from tests.support.boincproject import BoincProject
from tests.support.brokenruntime import ESCAPING, publish_broken_runtime

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LOOKING = """
import builtins, sys
posix = sys.modules["posix"]
found = [posix.getpid() > 0, "open" in vars(builtins)]
for place in PLACES:
    for look in (
        lambda: posix.open(place, posix.O_RDONLY),
        lambda: posix.listdir(place),
        lambda: posix.stat(place),
        lambda: builtins.open(place).read(),
    ):
        try:
            found.append(str(look()))
        except BaseException as error:
            found.append([type(error).__name__, getattr(error, "errno", None)])
"""
FORKING = """
import sys
posix = sys.modules["posix"]
child = posix.fork()
if child == 0:
    while True:
        pass
found = child
"""
KILLING = """
import sys
posix = sys.modules["posix"]
posix.kill(posix.getppid(), 9)
found = "killed the zygote"
"""
CALLING = """
import sys
found = str(__import__("_socket").socket(2, 1))
"""
ESCAPED = Path(tempfile.gettempdir()) / "stoilo-escaped"
REPLACING = """
import sys
posix = sys.modules["posix"]
posix.execv("/bin/sh", ["sh", "-c", "id > ESCAPED"])
found = "became a shell"
"""
WRITING = """
import sys
posix = sys.modules["posix"]
file = posix.open("result", posix.O_WRONLY | posix.O_CREAT)
posix.write(file, b"forged")
found = "forged"
"""


@pytest.fixture(scope="module")
def broken(frozen: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a project's data directory whose `pure` runtime is broken."""
    data = tmp_path_factory.mktemp("broken") / "data"
    shutil.copytree(frozen, data, ignore=shutil.ignore_patterns("run"))
    publish_broken_runtime(data)
    yield data
    shutil.rmtree(data)


@pytest.fixture(scope="module")
def world(broken: Path) -> Iterator[tuple[BoincProject, BoincClient]]:
    with BoincProject(broken) as project, project.client() as client:
        yield project, client


def places(client: BoincClient) -> list[str]:
    """Return everything near a task that it must not see."""
    slot = client.directory / "slots" / "0"
    return [
        *("init_data.xml", ".", "..", "/", "/proc/self/environ", "/etc/passwd"),
        *("../../client_state.xml", "boinc_mmap_file"),
        *map(str, (slot, slot / "init_data.xml", client.project_folder)),
        *map(str, (client.directory, client.directory / "client_state.xml")),
    ]


def run(world: tuple[BoincProject, BoincClient], code: str) -> str:
    """Return the id of a task that breaks out and runs `code`."""
    project, client = world
    code = code.replace("PLACES", repr(places(client)))
    code = code.replace("ESCAPED", str(ESCAPED))
    return project.submit(ESCAPING, {"code": code})


HARMFUL = (FORKING, KILLING, CALLING, REPLACING, WRITING)
JAIL_ENDED = "STO-S010"


@pytest.fixture(scope="module")
def tasks(world: tuple[BoincProject, BoincClient]) -> tuple[str, list[str]]:
    """Return a task that looks around and others that do harm; all begin at once."""
    return run(world, LOOKING), [run(world, code) for code in HARMFUL]


def test_task_that_broke_out_sees_nothing_of_its_host(
    world: tuple[BoincProject, BoincClient], tasks: tuple[str, list[str]]
) -> None:
    project, client = world
    seen = decode(project.wait(tasks[0], client).value)
    assert seen[:2] == [True, True]  # it did break out
    assert seen[2:] == [["PermissionError", errno.EACCES]] * 4 * len(places(client))


def has_come_back(answer: pb.PollTaskResponse) -> bool:
    """Say whether the first copy of a task has been reported."""
    return bool(answer.copies and answer.copies[0].received_at)


def test_tasks_that_broke_out_harm_nothing_and_the_client_goes_on(
    world: tuple[BoincProject, BoincClient], tasks: tuple[str, list[str]]
) -> None:
    project, client = world

    def answers() -> list[pb.PollTaskResponse]:
        return [project.researcher.poll(task) for task in tasks[1]]

    client.wait_for(lambda: all(map(has_come_back, answers())))
    client.wait_for(lambda: not client.family())
    for answer in answers():  # a call that is not let through ends the run, or fails
        ended = answer.copies[0].code == JAIL_ENDED
        assert ended or answer.error_type == "PermissionError", answer
        project.researcher.cancel(answer.task_id)
    assert not ESCAPED.exists()
    sound = project.submit(arguments={"rounds": 10})
    assert isinstance(decode(project.wait(sound, client).value), int)
