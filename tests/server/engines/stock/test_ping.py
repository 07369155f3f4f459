"""The doctor asks as BOINC's scripts do: only an answer is one."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import closing

import pytest

from stoilo.server.engines.stock.script_server import ScriptServer, ask_socket


@pytest.fixture
def deep(tmp_path):
    """A socket whose whole path is longer than names of sockets may be."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    return folder / "validate.sock"


def listen(path):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH)
    made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    made.listen(8)
    return made


def test_engine_that_answers_is_well_and_complains_of_nothing(deep, caplog):
    handover = ScriptServer(deep, validator=None, assimilator=None)
    with caplog.at_level(logging.WARNING):
        assert ask_socket(deep) == ""
    handover.close()
    assert caplog.records == []


def test_socket_that_nobody_serves_is_not_well(deep):
    with closing(listen(deep)):
        assert "answers none" in ask_socket(deep, wait_s=0.1)


def test_socket_of_a_server_that_died_is_not_well(deep):
    listen(deep).close()
    assert ask_socket(deep) == "Connection refused"


def test_missing_socket_and_missing_folder_are_said(deep):
    assert ask_socket(deep) == "No such file or directory"
    assert ask_socket(deep.parent / "none" / "s") == "No such file or directory"
