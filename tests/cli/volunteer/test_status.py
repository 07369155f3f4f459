"""`stoilo volunteer self-check` against a released project on a server of files."""

import hashlib
import http.server
import json
import threading
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest

from stoilo.audit.format.facts import NamedDigest, ReleaseRecord
from stoilo.audit.format.merkle import Checkpoint, leaf_hash, render_checkpoint
from stoilo.audit.format.note import Note, render_note, sign_note
from stoilo.audit.format.proof import Proof, render_proof
from stoilo.audit.format.records import record_leaf, render_record, render_release_proof
from stoilo.cli.main import main
from stoilo.executor.verifier.targets import ArchiveFile, PartFile
from stoilo.executor.verifier.trust import installed_release
from stoilo.server.http.release_files import read_index
from stoilo.signer.key_files import read_private_key
from tests.support.release import ReleasedProject

PLATFORM = "x86_64-linux"
TREE = hashlib.sha256(b"tree").hexdigest()
ARCHIVE = b"the verifier's archive"


def digest(data):
    return hashlib.sha256(data).hexdigest()


LAUNCHER = (
    f"\x7fELF stoilo-launcher/1 {PLATFORM} 1.0 1 {digest(ARCHIVE)} {len(ARCHIVE)} "
    f"{digest(b'tree')}\n"
).encode("latin-1")


def record(part, data, tree=""):
    return msgspec.json.encode(
        PartFile(
            format="stoilo-part/1",
            part=part,
            platform=PLATFORM,
            version="1.0",
            serial=1,
            archive=ArchiveFile(name="file", size=len(data), sha256=digest(data)),
            tree=tree,
        )
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    files = {
        f"launcher/{PLATFORM}": LAUNCHER,
        f"launcher/{PLATFORM}.json": record("launcher", LAUNCHER),
        f"verifier/{PLATFORM}.tar": ARCHIVE,
        f"verifier/{PLATFORM}.tree": b"tree",
        f"verifier/{PLATFORM}.json": record("verifier", ARCHIVE, TREE),
    }
    parts = {}
    for number, (name, data) in enumerate(files.items()):
        (folder / str(number)).write_bytes(data)
        parts[name] = folder / str(number)
    made = ReleasedProject(
        folder / "www" / "release", "o", installed_release(), parts=parts
    )
    made.directory.mkdir(parents=True, mode=0o700)
    made.publish(int(time.time()))
    index = msgspec.json.encode(read_index(made.directory))
    (made.directory / "index.json").write_bytes(index)
    return folder


def log_release(directory, *digests):
    """Write the proof of a log whose only leaf is this release's record."""
    names = (f"launcher/{PLATFORM}", f"verifier/{PLATFORM}")
    parts = tuple(map(NamedDigest, names, digests))
    told = render_record(ReleaseRecord("o", 1, 1, 1, (), parts, ""))
    leaf = record_leaf(told, "1")
    body = render_checkpoint(Checkpoint("o", 1, leaf_hash(leaf)))
    key = read_private_key(directory / "online" / "log.pem").key
    note = render_note(Note(body, (sign_note(body, "o", key),)))
    proof = render_release_proof(render_proof(Proof(0, (), note)), leaf)
    (directory / "release.record.json").write_bytes(told)
    (directory / "release.tlog-proof").write_bytes(proof)


@pytest.fixture
def logged(project):
    directory = project / "www" / "release"
    log_release(directory, digest(LAUNCHER), digest(ARCHIVE))
    yield directory
    for name in ("release.record.json", "release.tlog-proof"):
        (directory / name).unlink()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url(project):
    handler = partial(Quiet, directory=str(project / "www"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def check(project, url, launcher, *words):
    root = project / "www" / "release" / "root.json"
    options = ["--project", url, "--root", str(root), "--launcher", str(launcher)]
    return main(["volunteer", "self-check", *options, *words])


def test_release_without_its_log_proof_is_refused(project, url, capsys):
    assert check(project, url, project / "0") == 4
    assert "STO-F045" in capsys.readouterr().err


@pytest.mark.usefixtures("logged")
def test_other_launcher_is_refused(project, url, tmp_path, capsys):
    (tmp_path / "launcher").write_bytes(LAUNCHER + b"!")
    assert check(project, url, tmp_path / "launcher") == 4
    assert "STO-F045" in capsys.readouterr().err


def test_release_that_only_this_volunteer_was_shown_is_refused(
    project, url, logged, capsys
):
    log_release(logged, digest(b"everybody else's launcher"), digest(ARCHIVE))
    assert check(project, url, project / "0") == 4
    assert "STO-F045" in capsys.readouterr().err


@pytest.mark.usefixtures("logged")
def test_published_launcher_and_its_verifier_are_named(project, url, capsys):
    assert check(project, url, project / "0", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["part"] for one in said["parts"]] == ["launcher", "verifier"]
    assert said["log"] == {"entry": 0, "size": 1, "witnessed": None}
    assert said["development"] is False


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"url": "http://127.0.0.1:1/"}, 7), ({"launcher": Path("/none")}, 2)],
)
def test_what_is_not_there_is_named(project, url, changes, code):
    arguments = {"url": url, "launcher": project / "0"} | changes
    assert check(project, **arguments) == code
