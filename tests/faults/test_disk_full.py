"""A disk that fills up under a running deployment (issue: disk full).

The server, its log, its signer and its volunteers live on one small tmpfs of a private
mount namespace. Full: refusals with codes, and what was acknowledged stays. Room again:
everything goes on, the log verifies, no task is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode, encode
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

MIB = 1024 * 1024
CODES = {"STO-R030"}


def may_mount() -> bool:
    """Whether this machine lets us make a private mount namespace with a tmpfs."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


class SmallDisk(Deployment):
    """A deployment whose data directory is a tmpfs of its own namespace."""

    size_mib = 160  # the engine takes no result below 64 MiB of room

    def command(self) -> list[str]:
        mount = f"mount -t tmpfs -o size={self.size_mib}m,mode=700 stoilo {self.data}"
        return ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "up",
                *super().command()]  # fmt: skip

    @property
    def inside(self) -> Path:
        """The data directory as the server sees it."""
        return Path(f"/proc/{self.pid}/root{self.data}")

    def fill(self) -> None:
        """Take every byte that is left."""
        with contextlib.suppress(OSError), (self.inside / "filler").open("wb") as file:
            while True:
                os.write(file.fileno(), bytes(MIB))
        with contextlib.suppress(OSError), (self.inside / "filler2").open("wb") as file:
            while True:
                os.write(file.fileno(), bytes(512))

    def free(self) -> None:
        """Give the room back."""
        for name in ("filler", "filler2"):
            (self.inside / name).unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path):
    if not may_mount():
        pytest.skip("needs root and unshare for a small disk of its own")
    data = tmp_path / "data"
    data.mkdir()
    with SmallDisk(data, volunteers=2, log=tmp_path / "up.log") as deployment:
        yield deployment
    assert "Traceback" not in (tmp_path / "up.log").read_text()


def verify(directory: Path, *, where: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `stoilo audit verify`, in the namespace of process `where` if given."""
    enter = ["nsenter", "-m", "-t", str(where)] if where else []
    command = [
        sys.executable,
        "-m",
        "stoilo",
        "audit",
        "verify",
        str(directory),
        "--json",
    ]
    return subprocess.run(
        [*enter, *command], capture_output=True, text=True, check=False
    )


def submit_until_refused(client: RawClient, tasks: list[str]) -> str:
    """Submit until the server refuses; returns the code."""
    for number in range(2000):
        answer = client.create(arguments=encode({"x": number, "pad": bytes(4000)}))
        if answer.status != "OK":
            return answer.code
        tasks.append(answer.body[2:34].decode())
    pytest.fail("the disk was never full")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_full_disk_refuses_with_codes_and_goes_on_when_there_is_room(disk) -> None:
    connection = disk.inside / "connection.json"
    with RawClient(connection) as client:
        before = client.submit()
        assert client.wait(before).state == "succeeded"
        tasks = [client.submit() for _ in range(3)]
        disk.fill()
        assert submit_until_refused(client, tasks) in CODES
        value = encode(os.urandom(2 * MIB))
        name = hashlib.sha256(value).hexdigest()
        assert client.upload(name, len(value), value[:MIB], value[MIB:]).code in CODES
        assert client.download(name).code == "STO-R003"
        assert client.poll(before).state == "succeeded"
        time.sleep(5)  # let everything that writes meet the full disk
        assert disk.process is not None
        assert disk.process.poll() is None
        # what the log no longer needs may have left a little room meanwhile
        assert submit_until_refused(client, tasks) in CODES
        disk.free()
        answers = [client.wait(task_id, 120) for task_id in tasks]
        assert {answer.state for answer in answers} == {"succeeded"}
        assert decode(client.wait(client.submit()).value) == 42
        assert client.upload(name, len(value), value[:MIB], value[MIB:]).status == "OK"
        assert client.download(name).status == "OK"
    for log in disk.inside.rglob("*.log"):
        assert "Traceback" not in log.read_text(errors="replace"), log
    for _ in range(300):  # the last leaves are published within moments
        done = verify(disk.data, where=disk.pid)
        if done.returncode == 0:
            break
        time.sleep(0.2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kill_on_a_full_disk_loses_no_acknowledged_task(disk, tmp_path) -> None:
    """The state that a crash on a full disk leaves starts again on a larger one."""
    tasks: list[str] = []
    with RawClient(disk.inside / "connection.json") as client:
        tasks += [client.submit() for _ in range(5)]
        disk.fill()
        submit_until_refused(client, tasks)
    copy = tmp_path / "copy"
    inside = disk.inside
    os.kill(disk.pid, 19)  # stopped, so that what is copied is one moment
    shutil.copytree(inside, copy, ignore=shutil.ignore_patterns("filler*", "*.sock"))
    disk.kill()
    with Deployment(copy, volunteers=2) as again:
        assert again.line is not None
        with RawClient(Path(again.line.connection)) as client:
            for task_id in tasks:
                assert client.wait(task_id, 120).state == "succeeded"
        assert verify(copy).returncode == 0
