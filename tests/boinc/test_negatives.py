"""What a stock client refuses by itself: files of a hostile server, before they start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.boinc import BoincClient
from tests.support.boincproject import BoincProject
from tests.support.meddler import Meddler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SIGNATURE = re.compile(rb"<file_signature>.*?</file_signature>\n?", re.DOTALL)
MD5 = re.compile(rb"<md5_cksum>[0-9a-f]{32}</md5_cksum>")


def unsigned(reply: bytes) -> bytes:
    return SIGNATURE.sub(b"", reply)


def signed_for_the_other(reply: bytes) -> bytes:
    """Return the reply with the signatures of launcher and verifier exchanged."""
    found = SIGNATURE.findall(reply)[::-1]
    return SIGNATURE.sub(lambda _: found.pop(0), reply)


def with_another_md5(reply: bytes) -> bytes:
    return MD5.sub(b"<md5_cksum>" + b"0" * 32 + b"</md5_cksum>", reply)


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "-123": unsigned,
    "-120": signed_for_the_other,
    "-119": with_another_md5,
}


@pytest.fixture(scope="module")
def refused(project: BoincProject) -> Iterator[dict[str, BoincClient]]:
    """Return a client for each way to deceive one; all work at once."""
    tasks = [project.submit() for _ in EDITS]
    with ExitStack() as stack:
        clients = {}
        for number, edit in EDITS.items():
            meddler = stack.enter_context(Meddler(str(project.line.project), edit))
            client = project.client(project=meddler.project, cpus=1)
            clients[number] = stack.enter_context(client)
        yield clients
        for task in tasks:
            project.researcher.cancel(task)


@pytest.mark.parametrize("number", EDITS)
def test_deceived_client_ends_the_task_before_its_start(
    refused: dict[str, BoincClient], number: str
) -> None:
    client = refused[number]
    client.wait_for(lambda: f"<error_code>{number}" in client.state())
    assert "forked process" not in client.messages()
    assert not client.home.exists()
