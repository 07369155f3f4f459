"""A stock client and mirrors: it fetches there, goes on where one is dead, survives a liar."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.server.engines.embedded.accounts.accounts import load_secret
from tests.support.boincproject import BoincProject
from tests.support.meddler import Meddler
from tests.support.mirrors import CachingMirror, serve_app
from tests.support.wire import UNFINISHED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

INPUT = re.compile(rb"(<name>([0-9a-f]{64})</name>)(<url>)")


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> CachingMirror:
    return CachingMirror(tmp_path_factory.mktemp("mirror"))


@pytest.fixture(scope="module")
def mirrored(frozen: Path, mirror: CachingMirror) -> Iterator[BoincProject]:
    """A project with one mirror that holds what its tasks share."""
    with serve_app(mirror) as url, pytest.MonkeyPatch.context() as patch:
        mirror.url = url
        patch.setenv("STOILO_SERVER_MIRRORS", url)
        with BoincProject(frozen) as project:
            secret = project.deployment.data / "engine" / "mirror.secret"
            mirror.key = load_secret(secret).hex()
            mirror.project = str(project.line.project)
            task = project.submit()  # else nothing is shared that could be asked for
            wait_until_checked(mirror)
            project.researcher.cancel(task)
            yield project


def wait_until_checked(mirror: CachingMirror) -> None:
    """Wait until the project has looked at pieces of the mirror's files."""
    limit = time.monotonic() + 300
    while not mirror.pieces:
        assert time.monotonic() < limit, "the mirror is not checked"
        time.sleep(0.5)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_client_fetches_from_the_mirror_and_survives_one_that_lies(
    mirrored: BoincProject, mirror: CachingMirror
) -> None:
    with mirrored.client(cpus=1) as client:
        mirrored.wait(mirrored.submit(), client)
        assert set(mirror.whole.values()) == {1}
    mirror.lies = True
    with mirrored.client(cpus=1) as client:
        task = mirrored.submit()
        client.wait_for(lambda: "<error_code>-119" in client.state())
        client.wait_for(lambda: not client.tasks())  # reported
        assert mirrored.researcher.poll(task).state in UNFINISHED
        client.tell_project("update")
        mirrored.wait(mirrored.submit(), client)
        mirrored.researcher.cancel(task)


def test_client_goes_on_where_mirrors_are_dead_or_have_nothing(
    mirrored: BoincProject, mirror: CachingMirror
) -> None:
    dead = f"http://127.0.0.1:{closed_port()}/"
    gone = f"{mirror.url}gone"

    def with_mirrors(reply: bytes) -> bytes:
        urls = f"<url>{dead}x</url><url>{gone}</url>".encode()
        return INPUT.sub(rb"\1" + urls + rb"\3", reply)

    mirror.lies = False
    with (
        Meddler(str(mirrored.line.project), with_mirrors) as meddler,
        mirrored.client(project=meddler.project, cpus=1) as client,
    ):
        mirrored.wait(mirrored.submit(), client)
    assert mirror.asked_in_vain
