"""The socket for BOINC's scripts outlives what the system refuses for a while."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from stoilo.server.engines.stock.script_server import ScriptServer
from stoilo.server.engines.stock.validator import Answer
from tests.support.stocktools.project import make_fake_project

RESULT = "/u/1/t_1_0_r12_0"
STARVED = """
import logging, os, resource, sys
from pathlib import Path
from stoilo.server.engines.stock.script_server import ScriptServer
from stoilo.server.engines.stock.validator import Answer

class Content:
    def check(self, output):
        return Answer.YES

logging.basicConfig(stream=sys.stdout, format="%(message)s")
handover = ScriptServer(Path(sys.argv[1]), Content(), None)
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    print("none is left", flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, before)
sys.stdin.readline()
handover.close()
"""


class Content:
    def check(self, _output):
        return Answer.YES


@pytest.fixture
def fake(tmp_path):
    return make_fake_project(tmp_path / "p")


def connect(fake):
    """Return a connection that says nothing yet."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    folder = os.open(fake.project.own, os.O_RDONLY)
    client.connect(f"/proc/self/fd/{folder}/validate.sock")
    os.close(folder)
    return client


def ask(fake):
    return subprocess.Popen(["../bin/stoilo_validate", RESULT], cwd=fake.root / "bin")


@pytest.mark.slow  # a process of its own is short of descriptors
def test_call_is_answered_when_descriptors_are_free_again(fake):
    command = [sys.executable, "-c", STARVED, fake.project.socket]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starved:
        patience = threading.Timer(120, starved.kill)
        patience.start()
        assert starved.stdout.readline() == "none is left\n"
        with connect(
            fake
        ):  # takes the descriptor that a waiting `accept` has set aside
            asking = ask(fake)
            assert "errno 24" in starved.stdout.readline()
        print(file=starved.stdin, flush=True)
        assert asking.wait(60) == 0
        print(file=starved.stdin, flush=True)
        assert starved.wait(60) == 0
        patience.cancel()


def test_thread_that_cannot_be_started_costs_its_call_only(fake):
    content = Content()
    handover = ScriptServer(fake.project.socket, content, content, workers=1)
    handover._pool.shutdown()  # takes no call: RuntimeError, as without a thread
    with connect(fake) as client:
        assert client.recv(8) == b""
    assert handover._thread.is_alive()
    handover.close()
