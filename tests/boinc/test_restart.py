"""The server dies in the middle of an upload and comes back."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.boincproject import BoincProject
from tests.support.meddler import Meddler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LARGE = b"""
def task(kwargs):
    return "x" * kwargs["size"]
"""
SIZE = 6_000_000
OFFSET = re.compile(rb"<offset>([0-9]+)</offset>")


class Accident:
    """Lets half of the first upload arrive, then ends the server and starts it again."""

    def __init__(self, project: BoincProject, wait_until) -> None:
        self._project = project
        self._wait_until = wait_until
        self.happened = False

    def __call__(self, path: str, body: bytes) -> bool:
        """Say whether this upload may pass."""
        if self.happened or b"<file_upload>" not in body:
            return True
        with socket.create_connection(self._address()) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(head.encode() + b"\r\n" + body[: len(body) // 2])
            self._wait_until(self._has_arrived)
            self._project.deployment.kill()
        self._project.deployment.start()
        self.happened = True
        return False

    def _address(self) -> tuple[str, int]:
        place = urlsplit(str(self._project.line.project))
        return str(place.hostname), int(place.port or 0)

    def _has_arrived(self) -> bool:
        parts = self.uploads().glob("*.part")
        return any(path.stat().st_size > SIZE // 4 for path in parts)

    def uploads(self) -> Path:
        """Return where the server keeps what has arrived."""
        return self._project.deployment.data / "engine" / "uploads"


def offsets(meddler: Meddler) -> list[int]:
    """Return from where each upload went on."""
    found = (OFFSET.search(body[:4096]) for _, body in meddler.requests)
    return [int(match[1]) for match in found if match]


def test_upload_goes_on_where_the_killed_server_had_it(
    project: BoincProject, wait_until
) -> None:
    accident = Accident(project, wait_until)
    with Meddler(str(project.line.project), through=True) as meddler:
        meddler.on_upload = accident
        task = project.submit(LARGE, {"size": SIZE})
        with project.client(project=meddler.project) as client:
            client.wait_for(lambda: accident.happened)
            client.wait_for_message(
                "Backing off .* on upload|Temporarily failed upload"
            )
            client.command("--network_available")  # as a person who will not wait
            project.wait(task, client)
    assert offsets(meddler)[0] == 0
    assert offsets(meddler)[-1] > SIZE // 4
