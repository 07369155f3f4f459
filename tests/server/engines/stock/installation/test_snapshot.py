"""The project's pages are asked as clients ask them; only what answers is an answer."""

from __future__ import annotations

import http.server
import threading

import pytest

from stoilo.server.engines.stock.installation.snapshot import ask_web
from stoilo.server.engines.stock.project.config import ConfigText
from stoilo.server.engines.stock.project.directory import StockProject


class Site(http.server.BaseHTTPRequestHandler):
    """A master page that names a scheduler; downloads are forbidden."""

    def do_GET(self):
        self.send_response(403 if "download" in self.path else 200)
        self.end_headers()
        host = self.headers["Host"]
        link = f'<link rel="boinc_scheduler" href="http://{host}/cgi">'
        self.wfile.write(link.encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<scheduler_reply>" + b"x" * 1_000_000)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def url():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def project(tmp_path, url):
    settings = {"master_url": url, "download_url": f"{url}download"}
    return StockProject(tmp_path, ConfigText(settings))


def test_pages_are_asked_and_read_to_a_bound(tmp_path, url):
    found = ask_web(project(tmp_path, url), ["x"])
    assert found["scheduler"].url == f"{url}cgi"
    assert found["scheduler"].body.startswith("<scheduler_reply>")
    assert len(found["scheduler"].body) < 1_000_000
    assert found["download"].status == 403
    assert found["upload handler"].trouble == "no address is known"


def test_server_that_is_away_is_said(tmp_path):
    found = ask_web(project(tmp_path, "http://127.0.0.1:9/"), [])
    assert found["master page"].trouble.startswith("no answer")
    assert found["scheduler"].trouble == "no address is known"
    assert "download" not in found
