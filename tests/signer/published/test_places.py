import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stoilo.core.errors import StoiloError, TrustError, UnreachableError
from stoilo.signer.published.places import DirectoryPlace, WebPlace, open_place
from stoilo.signer.published.verify import verify_release
from tests.support.stage import ReleaseStage


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve a directory on loopback; yields its URL."""
    handler = partial(_Quiet, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_release_on_the_web_holds(stage: ReleaseStage, template: Path) -> None:
    with served(template) as url:
        found = verify_release(open_place(url), stage.now, installed=stage.installed)
    assert [one.builders for one in found.evidence] == [("bea", "ben")] * 3
    assert found.boinc is not None
    assert found.logged is not None


@pytest.mark.parametrize(
    "name",
    [
        "metadata/1.targets.json",
        "targets/verifier",
        "builds/pure",
        "boinc",
        "root.json",
    ],
)
def test_changed_release_on_the_web_is_refused(
    stage: ReleaseStage, release: Path, name: str
) -> None:
    below = release / name
    for path in sorted(below.rglob("*")) if below.is_dir() else [below]:
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"#")
    with served(release) as url, pytest.raises(TrustError):
        verify_release(open_place(url), stage.now, installed=stage.installed)


def test_web_without_release_is_a_usage_error(
    stage: ReleaseStage, tmp_path: Path
) -> None:
    with served(tmp_path) as url, pytest.raises(StoiloError, match="STO-K052"):
        verify_release(open_place(url), stage.now, installed=stage.installed)


def test_web_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="STO-L002"):
        WebPlace("http://127.0.0.1:1/release").read("root.json", 10)


@pytest.mark.parametrize("web", [True, False])
def test_endless_file_is_cut_short(tmp_path: Path, web: bool) -> None:
    (tmp_path / "root.json").write_bytes(b"0" * 1000)
    with served(tmp_path) as url:
        place = WebPlace(url) if web else DirectoryPlace(tmp_path)
        assert place.read("root.json", 1000) == b"0" * 1000
        with pytest.raises(TrustError, match="STO-K013"):
            place.read("root.json", 999)


def test_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        for place in (WebPlace(url), DirectoryPlace(tmp_path)):
            assert place.read("metadata/1.root.json", 10) is None


def test_servers_private_directories_are_left_out(tmp_path: Path) -> None:
    for name in ("metadata/1.root.json", "online/a.pem", "state/x", ".root.json.new"):
        (tmp_path / "keys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "keys" / name).touch()
    assert DirectoryPlace(tmp_path).names() == {"metadata/1.root.json"}


def test_servers_keys_directory_may_be_named_itself(tmp_path: Path) -> None:
    for name in ("metadata/1.root.json", "online/a.pem", "state/x"):
        (tmp_path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert DirectoryPlace(tmp_path).names() == {"metadata/1.root.json"}
    (tmp_path / "state").chmod(0o755)
    assert len(DirectoryPlace(tmp_path).names() or ()) == 3


def test_public_directory_has_no_private_ones(tmp_path: Path) -> None:
    for name in ("metadata/1.root.json", "online/a.pem"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert DirectoryPlace(tmp_path).names() == {"metadata/1.root.json", "online/a.pem"}


def test_folders_without_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "/".join("a" * 400)).mkdir(parents=True)
    with pytest.raises(TrustError, match="STO-K013"):
        DirectoryPlace(tmp_path).names()
