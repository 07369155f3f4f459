"""A witness as people run it: a process, HTTP, and kill -9 at the worst moment."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stoilo.audit.format.note import parse_vkey
from stoilo.audit.format.policy import LogPolicy, Witness, open_checkpoint
from stoilo.audit.witness.client import Cosigner
from stoilo.audit.witness.keys import make_witness_key
from stoilo.audit.witness.protocol import (
    MAX_REQUEST_BYTES,
    hash_origin,
    parse_cosignatures,
    render_add_checkpoint,
)
from stoilo.core.errors import UnreachableError
from stoilo.server.tls import ensure_tls
from stoilo.testing.witness import WitnessProcess
from tests.support.faulty_log import LogKey
from tests.support.local_witness import GrowingLog

NAME = "witness.test/w"


@pytest.fixture
def running(tmp_path, key):
    with WitnessProcess(tmp_path / "w", NAME, [key.vkey]) as one:
        yield one


def call(one, method, path, body=None):
    place = urlsplit(one.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        with connection.getresponse() as answer:
            return answer.status, answer.read(), answer.headers["content-type"]


def ask(one, log, old, size):
    body = render_add_checkpoint(log.request(old, size))
    return call(one, "POST", "/add-checkpoint", body)


def test_protocol_over_http(running, log):
    status, body, _ = ask(running, log, 0, 5)
    assert status == 200
    assert parse_cosignatures(body)[0].name == NAME
    assert ask(running, log, 0, 5) == (409, b"5\n", "text/x.tlog.size")
    status, note, _ = call(running, "GET", f"/{hash_origin('log.test/t')}/checkpoint")
    assert (status, note.startswith(log.body(5))) == (200, True)
    assert call(running, "GET", f"/{'0' * 64}/checkpoint")[0] == 404
    assert call(running, "GET", "/add-checkpoint")[0] in {404, 405}
    assert call(running, "POST", "/add-checkpoint", b"garbage")[0] == 400


def test_endless_request_is_cut_off(running, log):
    long = b"x" * (MAX_REQUEST_BYTES + 1)
    assert call(running, "POST", "/add-checkpoint", long)[0] == 413
    assert ask(running, log, 0, 5)[0] == 200  # control: it still answers


def test_client_that_hangs_up_harms_nobody(running, log):
    place = urlsplit(running.url)
    for _ in range(20):
        half = socket.create_connection((place.hostname, place.port), 5)
        half.sendall(b"POST /add-checkpoint HTTP/1.1\r\ncontent-length: 99\r\n\r\nold")
        half.close()
    assert ask(running, log, 0, 5)[0] == 200


def test_cosigner_over_http_keeps_its_connection(running, log, key):
    witness = Witness("w", parse_vkey(running.vkey), running.url)
    policy = LogPolicy((parse_vkey(key.vkey),), (witness,), (), "w")
    cosigner = Cosigner(policy)
    for size in (1, 2, 30):
        note = cosigner(log.note(size), log.prove(size))
        assert open_checkpoint(note, policy).checkpoint.size == size
    running.kill()
    running.start()  # the kept connection is gone, its memory is not
    assert open_checkpoint(cosigner(log.note(31), log.prove(31)), policy)
    cosigner.close()


def check_rounds(one, log, rounds):
    """Kill the witness at a random moment of each round; no size ever goes back."""
    fork = GrowingLog(log.key, "fork")
    assert ask(one, log, 0, 1)[0] == 200
    last = 1
    for number in range(rounds):
        cosigned = [last]

        def climb(cosigned=cosigned):
            with contextlib.suppress(OSError, http.client.HTTPException):
                while ask(one, log, cosigned[-1], cosigned[-1] + 1)[0] == 200:
                    cosigned.append(cosigned[-1] + 1)

        thread = threading.Thread(target=climb)
        thread.start()
        time.sleep(0.02 + 0.013 * (number % 7))
        one.kill()
        thread.join()
        one.listen = "127.0.0.1:0"  # somebody else may have taken the port meanwhile
        one.start()
        last = int(ask(one, log, 20_000, 20_000)[1])  # what it remembers
        assert cosigned[-1] <= last <= cosigned[-1] + 1
        assert ask(one, fork, last, last + 3)[0] == 422
    assert last > 1 or rounds < 5  # control: some rounds did something


def test_killed_witness_remembers_what_it_cosigned(running, log):
    check_rounds(running, log, 2)


@pytest.mark.slow
def test_witness_killed_thirty_times_never_forgets(running, log):
    check_rounds(running, log, 30)


def test_witness_without_key_or_logs_says_what_is_missing(tmp_path, key):
    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "stoilo", "audit", "witness", "--json",
             "--data", str(tmp_path / "w"), *words],
            capture_output=True, check=False, timeout=200,
        )  # fmt: skip
        return done.returncode, json.loads(done.stderr)["error"]["code"]

    assert run("--log", key.vkey) == (4, "STO-L110")
    make_witness_key(tmp_path / "w", NAME)
    assert run() == (2, "STO-U003")
    assert run("--log", key.vkey, "--listen", "nowhere") == (2, "STO-R090")


def test_witness_beyond_loopback_needs_tls(tmp_path, key):
    WitnessProcess(tmp_path / "w", NAME)
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", "audit", "witness", "--data",
         str(tmp_path / "w"), "--log", key.vkey, "--listen", "0.0.0.0:0"],
        capture_output=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"STO-R090" in done.stderr


def test_log_file_of_keys_is_read(tmp_path: Path, key, log):
    file = tmp_path / "logs"
    file.write_text(f"# logs\nlog {key.vkey}\n")
    with WitnessProcess(tmp_path / "w", NAME, logs_file=file) as one:
        assert ask(one, log, 0, 3)[0] == 200


def test_more_logs_are_watched_without_a_restart(tmp_path, key, log, wait_until):
    file = tmp_path / "logs"
    file.write_text(f"{LogKey('elsewhere.test/t').vkey}\n")
    with WitnessProcess(tmp_path / "w", NAME, logs_file=file) as one:
        assert ask(one, log, 0, 3)[0] == 404
        for text, status in ((f"{key.vkey}\n", 200), ("nonsense\n", 409)):
            file.write_text(text)  # a bad file changes nothing
            one.process.send_signal(signal.SIGHUP)
            wait_until(lambda status=status: ask(one, log, 0, 3)[0] == status)


def test_witness_ends_cleanly_when_asked(tmp_path, key):
    one = WitnessProcess(tmp_path / "w", NAME, [key.vkey])
    one.start()
    assert one.stop() == 0
    one.start()
    one.process.send_signal(signal.SIGINT)
    assert one.stop() == 0


def test_witness_with_a_certificate_is_asked_over_tls(tmp_path, key, log, monkeypatch):
    ensure_tls(tmp_path / "tls", datetime.now(UTC))
    files = tmp_path / "tls" / "server.pem", tmp_path / "tls" / "server.key"
    with WitnessProcess(tmp_path / "w", NAME, [key.vkey], tls=files) as one:
        assert one.url.startswith("https://127.0.0.1:")
        witness = Witness("w", parse_vkey(one.vkey), one.url)
        policy = LogPolicy((parse_vkey(key.vkey),), (witness,), (), "w")
        with (
            contextlib.closing(Cosigner(policy)) as stranger,
            pytest.raises(UnreachableError, match="SSLError"),
        ):
            stranger(log.note(3), log.prove(3))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls" / "ca.pem"))
        with contextlib.closing(Cosigner(policy)) as cosigner:
            assert open_checkpoint(cosigner(log.note(3), log.prove(3)), policy)
