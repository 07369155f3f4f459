"""A signer of another user: works on a released root, is refused on a development root."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from stoilo.core.levels import load_levels
from stoilo.executor.verifier.targets import InstalledRelease
from stoilo.policies.policy import default_policy
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST
from stoilo.testing.deployment import UpLine
from tests.support.openpython import find_open_python, is_open
from tests.support.release import ReleasedProject
from tests.support.twousers import SERVER_UID, SIGNER_UID, STRANGER_UID, TwoUsers
from tests.support.wire import RawClient

WAIT_S = 60.0
READ = "print(len(open({path!r}, 'rb').read()) > 0)"
PING = """
from pathlib import Path
from stoilo.signer.process.client import SignerClient
with SignerClient(Path({path!r}), timeout_s=30) as client:
    try:
        print(client.ping().log_vkey)
    except Exception as error:
        print(error.code)
"""

pytestmark = pytest.mark.slow


def test_development_root_refuses_a_foreign_signer(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "stoilo.toml").write_text('signer_socket = "/nowhere"\n')
    words = [
        "up",
        "--data",
        str(data),
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", *words],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 2
    assert "STO-R090" in done.stderr


@dataclass
class Project:
    """A released project at work under two users."""

    two: TwoUsers
    signer: subprocess.Popen[bytes]
    line: UpLine
    client: RawClient

    def fetch(self, name: str) -> bytes:
        url = f"{self.line.http}release/{name}"
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own server
            return bytes(answer.read())


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    if os.geteuid() != 0:
        pytest.skip("only root can run processes as two other users")
    python = find_open_python()
    if python is None or not is_open(Path(sysconfig.get_path("purelib"))):
        pytest.skip("no interpreter or no libraries that another user may read")
    with TwoUsers(python) as two:
        people = ReleasedProject(
            two.keys,
            "project.example/two",
            InstalledRelease(load_levels(), LANGUAGE_DIGEST),
            policies=(default_policy().digest,),
        )
        people.publish(int(time.time()))
        two.hand_over()
        signer = two.start_signer()
        line = two.start_server(volunteers=2)
        with RawClient(Path(line.connection)) as client:
            yield Project(two, signer, line, client)


def test_task_is_signed_by_another_users_signer_and_succeeds(project: Project) -> None:
    answer = project.client.wait(project.client.submit())
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)


def test_server_reads_what_is_public_and_no_key(project: Project) -> None:
    for name, readable in (("root.json", True), ("online/gate-1.pem", False)):
        source = READ.format(path=str(project.two.keys / name))
        assert (project.two.run_as(SERVER_UID, source) == "True") is readable
        assert project.two.run_as(SIGNER_UID, source) == "True"


def test_only_the_servers_user_is_answered(project: Project) -> None:
    source = PING.format(path=str(project.two.socket))
    assert project.two.run_as(STRANGER_UID, source) == "STO-K022"
    assert project.two.run_as(SERVER_UID, source).startswith("project.example/two+")


def test_log_tells_of_the_release_beside_the_servers_own_files(
    project: Project,
) -> None:
    end = time.monotonic() + WAIT_S
    while not (project.two.data / "release" / "release.tlog-proof").exists():
        assert time.monotonic() < end, project.two.said()
        time.sleep(0.1)
    assert b"1.root.json" in project.fetch("release.record.json")
    assert b"release.tlog-proof" in project.fetch("index.json")
    with pytest.raises(urllib.error.HTTPError):
        project.fetch("online/gate-1.pem")


def test_signer_that_is_started_again_signs_on(project: Project) -> None:
    project.two.stop(project.signer)
    task = project.client.submit()
    project.signer = project.two.start_signer()
    answer = project.client.wait(task)
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)
