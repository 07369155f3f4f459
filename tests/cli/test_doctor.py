"""`stoilo doctor`: each fault has a line and an advice; without it the line says ok."""

import fcntl
import json
import os
import socket
import threading
import time
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner

from stoilo.cli import doctor
from stoilo.cli.main import cli, main
from stoilo.server.data_directory import claim_directory
from stoilo.signer.development.root import create_development_root
from stoilo.testing.deployment import Deployment
from tests.support.gate import INSTALLED

DATA_ADDRESSES = 'grpc = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n'


class ServerOfAnotherTime:
    """Answers everything with 200, with a clock that is `ahead_s` off."""

    def __init__(self, ahead_s):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response_only(200)
                self.send_header("Date", formatdate(time.time() + ahead_s, usegmt=True))
                self.send_header("Content-Length", "0")
                self.end_headers()

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def data(tmp_path):
    """A server's data directory that nobody uses now."""
    place = tmp_path / "data"
    claim_directory(place).lock.close()
    create_development_root(
        place / "keys",
        "stoilo.local/development",
        int(time.time()),
        installed=INSTALLED,
    )
    (place / "stoilo.toml").write_text(DATA_ADDRESSES)
    return place


def states(check):
    return [(line.state, line.text) for line in doctor.examine("x", check)]


def only(check):
    (line,) = doctor.examine("x", check)
    return line


def test_this_machine_is_well(monkeypatch):
    monkeypatch.delenv("STOILO_CONNECTION", raising=False)
    result = CliRunner().invoke(cli, ["doctor", "--json"], standalone_mode=False)
    said = json.loads(result.stdout)
    assert (result.return_value, said["healthy"]) == (0, True)
    seen = Counter(line["name"] for line in said["checks"] if line["state"] == "ok")
    assert seen >= Counter(["python", "gate", "jail", "jail", "disk"])


def test_old_python_fails(monkeypatch):
    monkeypatch.setattr(doctor, "LEAST_PYTHON", (99, 0))
    assert only(doctor.check_python).state == "fail"


@pytest.mark.parametrize(
    ("ahead_s", "state"), [(0, "ok"), (-300, "fail"), (300, "fail")]
)
def test_clock_is_compared_with_the_server(tmp_path, ahead_s, state):
    with ServerOfAnotherTime(ahead_s) as server:
        file = tmp_path / "connection.json"
        file.write_text(json.dumps({"http": server.url}))
        line = only(lambda: doctor.check_clock(file, None))
    assert line.state == state


def test_clock_without_a_server_is_no_fault(tmp_path):
    assert only(lambda: doctor.check_clock(tmp_path / "none", None)).state == "note"


def test_small_disk_fails(monkeypatch):
    monkeypatch.setattr(doctor, "LEAST_FREE", 2**62)
    assert {state for state, _ in states(lambda: doctor.check_disk(None))} == {"fail"}


def test_server_that_is_away_fails_with_its_code(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "ANSWER_S", 0.5)
    file = tmp_path / "connection.json"
    file.write_text(json.dumps({"grpc": "127.0.0.1:1", "token": "t"}))
    line = only(lambda: doctor.check_server(str(file)))
    assert (line.state, "[STO-C050]" in line.text) == ("fail", True)


def test_missing_extra_is_no_fault(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    line = only(doctor.check_jail)
    assert (line.state, line.advice) == ("note", "pip install 'stoilo[executor]'")


def test_other_systems_may_submit(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert only(doctor.check_jail).state == "note"


def test_stopped_server_may_start(data):
    (line,) = doctor.check_data(data)
    assert (line.state, "one can start" in line.text) == ("ok", True)


def test_folder_of_no_server_fails(tmp_path):
    assert "[STO-U004]" in only(lambda: doctor.check_data(tmp_path)).text


def test_lost_offline_keys_are_named(data):
    (data / "keys" / "offline").rename(data.parent / "offline")
    first, second = doctor.check_data(data)
    assert (first.state, "keys/offline" in first.text) == ("fail", True)
    assert second.state == "ok"


def test_open_directory_is_named(data):
    data.chmod(0o755)
    assert next(doctor.check_data(data)).advice == f"chmod 700 {data}"


def test_taken_port_is_named(data):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = DATA_ADDRESSES.replace("127.0.0.1:0", f"127.0.0.1:{port}", 1)
        (data / "stoilo.toml").write_text(text)
        assert "[STO-U006]" in only(lambda: doctor.check_data(data)).text


def test_held_lock_is_a_running_server(data):
    assert not doctor.is_running(data)
    lock = os.open(data / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert doctor.is_running(data)
    os.close(lock)


def test_fault_of_a_check_is_the_exit_code(monkeypatch, capsys):
    for name in ("check_gate", "check_jail"):
        monkeypatch.setattr(doctor, name, lambda: iter(()))
    monkeypatch.setattr(doctor, "LEAST_FREE", 2**62)
    assert main(["doctor"]) == doctor.UNHEALTHY
    assert "-> make room" in capsys.readouterr().out


@pytest.mark.slow
def test_running_server_is_ready_for_researchers(tmp_path):
    with Deployment(tmp_path / "data") as server:
        ready, release, programs = doctor.check_data(tmp_path / "data")
        assert (ready.state, release.state) == ("ok", "ok")
        assert programs.state == "note"  # nobody has frozen any yet
        assert only(lambda: doctor.check_server(server.line.connection)).state == "ok"
