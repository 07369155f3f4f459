"""A release over HTTP: what a verifier needs of it, bounded, and nothing else."""

import datetime as dt
import http.server
import ssl
import threading

import msgspec
import pytest

from stoilo.core.errors import StoiloError, TrustError, UnreachableError
from stoilo.executor.verifier.trust import load_trust
from stoilo.executor.volunteer.programs import (
    MAX_INDEX_BYTES,
    fetch_release,
    wanted_names,
)
from stoilo.server.http.release_files import read_index
from stoilo.server.tls import ensure_tls

SHA = "a" * 64


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = self.server.files.get(self.path)
        self.send_response(404 if data is None else 200)
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.files = {}
    made.url = f"http://127.0.0.1:{made.server_port}/p/"
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def publish(server, directory):
    index = read_index(directory)
    server.files["/p/release/index.json"] = msgspec.json.encode(index)
    for file in index.files:
        server.files[f"/p/release/{file.name}"] = (directory / file.name).read_bytes()


def code_of(call, *arguments):
    with pytest.raises(StoiloError) as caught:
        call(*arguments)
    return caught.value.code


def test_fetched_release_verifies_like_the_directory(server, gate):
    publish(server, gate.root.directory)
    fetched = fetch_release(server.url)
    root = gate.root.root_file.read_bytes()
    trust = load_trust(fetched.files, root, gate.now, installed=gate.installed)
    assert trust == gate.root.trust
    assert (fetched.record, fetched.proof) == (b"", b"")


def test_proof_comes_along(server, gate):
    publish(server, gate.root.directory)
    server.files["/p/release/release.record.json"] = b"{}"
    server.files["/p/release/release.tlog-proof"] = b"proof"
    assert fetch_release(server.url).proof == b"proof"


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"format":"stoilo-release-index/2","files":[]}',
        b"[" * 100_000,
        b" " * (MAX_INDEX_BYTES + 1),
    ],
)
def test_bad_index_is_refused(server, index):
    server.files["/p/release/index.json"] = index
    with pytest.raises(TrustError) as caught:
        fetch_release(server.url)
    assert caught.value.code == "STO-K013"


def test_file_that_is_named_and_missing_is_not_reachable(server, gate):
    publish(server, gate.root.directory)
    del server.files["/p/release/metadata/timestamp.json"]
    with pytest.raises(UnreachableError):
        fetch_release(server.url)


def test_no_server_is_not_reachable_and_no_url_is_usage():
    assert code_of(fetch_release, "http://127.0.0.1:1/") == "STO-X001"
    assert code_of(fetch_release, "file:///etc/") == "STO-U003"


def test_archives_and_older_metadata_are_left_out():
    names = (
        "metadata/1.root.json",
        "metadata/2.root.json",
        "metadata/timestamp.json",
        "metadata/9.snapshot.json",
        "metadata/10.snapshot.json",
        f"targets/verifier/{SHA}.x86_64-linux.tar",
        f"targets/verifier/{SHA}.x86_64-linux.json",
        f"targets/flavor/pure/{SHA}.x86_64-linux.sbom.json",
        "../../etc/passwd",
        "boinc/key.pub",
    )
    assert set(wanted_names(names)) == {
        "metadata/1.root.json",
        "metadata/2.root.json",
        "metadata/timestamp.json",
        "metadata/10.snapshot.json",
        f"targets/verifier/{SHA}.x86_64-linux.json",
    }


@pytest.fixture
def private(server, tmp_path):
    """Serve over TLS, by a certificate that no system trusts; return its CA's file."""
    made = ensure_tls(tmp_path / "tls", dt.datetime.now(dt.UTC))
    for name, data in (("ca", made.ca), ("pair", made.key + made.certificate)):
        (tmp_path / name).write_bytes(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.url = server.url.replace("http:", "https:")
    return tmp_path / "ca"


def test_release_behind_a_private_certificate_is_fetched_by_its_ca(
    server, gate, private
):
    publish(server, gate.root.directory)
    root = gate.root.root_file.read_bytes()
    files = fetch_release(server.url, private).files
    trust = load_trust(files, root, gate.now, installed=gate.installed)
    assert trust == gate.root.trust
    assert code_of(fetch_release, server.url) == "STO-X001"  # not by the system's own
