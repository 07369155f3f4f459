import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.server.http.log_files import log_routes
from tests.support.faulty_log import LogKey

KEY = LogKey("log.test/t")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Serve a log of 300 leaves; beside it lies a file that must not be served."""
    with Sequencer.open(tmp_path, KEY.origin, KEY.sign, policy=KEY.policy) as log:
        log.append_many([b"%d" % number for number in range(300)])
    (tmp_path / "audit/log/secret").write_text("x")
    app = Starlette(routes=log_routes(tmp_path / "audit/log"))
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def test_log_verifies_over_the_server_s_address(port: int) -> None:
    assert verify_log(f"http://127.0.0.1:{port}/", KEY.policy).size == 300
    assert verify_log(f"http://127.0.0.1:{port}/audit/log").size == 300


def test_nothing_but_the_log_is_served(port: int) -> None:
    for name in ("secret", "../log.sqlite", "%2e%2e/log.sqlite", "tile/0/../../secret",
                 "tile/0/0", "", "tile"):  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", f"/audit/log/{name}")
        assert connection.getresponse().status == 404
        connection.close()
