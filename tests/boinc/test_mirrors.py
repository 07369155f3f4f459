"""A stock client and mirrors: it fetches there, goes on where one is dead, survives a liar."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.server.engines.embedded.people.accounts import load_secret
from stoilo.server.mirror.pull import Origin, sync
from stoilo.server.mirror.serving import create_mirror_app
from stoilo.server.mirror.shelf import Shelf
from tests.support.boinc import BoincClient
from tests.support.boincproject import BoincProject
from tests.support.meddler import Meddler
from tests.support.mirrors import FickleMirror, serve_app
from tests.support.wire import UNFINISHED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

INPUT = re.compile(rb"(<name>([0-9a-f]{64})</name>)(<url>)")


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> FickleMirror:
    folder = tmp_path_factory.mktemp("mirror")
    Shelf(folder).write_index()
    return FickleMirror(create_mirror_app(folder), folder)


@pytest.fixture(scope="module")
def mirrored(frozen: Path, mirror: FickleMirror) -> Iterator[BoincProject]:
    """A project with one mirror that holds what its tasks share."""
    with serve_app(mirror) as url, pytest.MonkeyPatch.context() as patch:
        mirror.url = url
        patch.setenv("STOILO_SERVER_MIRRORS", url)
        with BoincProject(frozen) as project:
            task = project.submit()
            pull(project, mirror.folder)
            project.researcher.cancel(task)
            yield project


def pull(project: BoincProject, folder: Path) -> None:
    """Fill the mirror as soon as the project has something to share."""
    key = load_secret(project.deployment.data / "engine" / "mirror.secret").hex()
    with Origin(str(project.line.project), key) as origin:
        limit = time.monotonic() + 300
        while not sync(origin, Shelf(folder), 10**9).fetched:
            assert time.monotonic() < limit, "nothing is shared"
            time.sleep(0.5)


def wait_until_checked(client: BoincClient, mirror: FickleMirror) -> None:
    """Wait until the project has looked at pieces of the mirror's files."""
    client.wait_for(lambda: mirror.pieces)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_client_fetches_from_the_mirror_and_survives_one_that_lies(
    mirrored: BoincProject, mirror: FickleMirror
) -> None:
    with mirrored.client(cpus=1) as client:
        wait_until_checked(client, mirror)
        mirrored.wait(mirrored.submit(), client)
        assert mirror.whole == Counter(dict.fromkeys(mirror.files(), 1))
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
    mirrored: BoincProject, mirror: FickleMirror
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
