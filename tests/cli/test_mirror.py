"""`stoilo mirror`: the key, one round, and a server that keeps its folder up to date."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest
import urllib3

from stoilo.cli.main import main
from stoilo.server.mirror.listing import Listed, render_listing
from tests.support.scripted import Scripted, ScriptedProject

DATA = b"shared" * 10_000
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def project():
    with ScriptedProject() as made:
        listing = render_listing([Listed(DIGEST, len(DATA))])
        made.answer("/mirror/list", Scripted(listing))
        made.answer(f"/mirror/file/{DIGEST}", Scripted(DATA))
        yield made


@pytest.fixture
def words(project, tmp_path):
    """Return the options that name project, key and folder."""
    (tmp_path / "key").write_text("abc123\n")
    places = ["--key-file", str(tmp_path / "key"), "--dir", str(tmp_path / "files")]
    return ["--from", project.url, *places]


def test_key_is_made_once_and_for_a_server_only(tmp_path, capsys):
    assert main(["mirror", "key", "--data", str(tmp_path)]) == 2
    (tmp_path / "engine").mkdir()
    keys = set()
    for _ in range(2):
        capsys.readouterr()
        assert main(["mirror", "key", "--data", str(tmp_path)]) == 0
        keys.add(capsys.readouterr().out)
    assert len(keys) == 1
    assert len(keys.pop()) == 65


def test_sync_brings_a_folder_up_to_date(words, tmp_path, capsys):
    assert main(["mirror", "sync", *words, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done == {"fetched": 1, "evicted": 0, "left_out": 0, "failed": 0}
    assert (tmp_path / "files" / DIGEST).read_bytes() == DATA


def test_sync_says_when_a_file_could_not_be_had(words, project):
    project.answer(f"/mirror/file/{DIGEST}", Scripted(b"x" * len(DATA)))
    assert main(["mirror", "sync", *words]) == 7


@pytest.mark.parametrize(("key", "code"), [("", 2), ("../..", 2)])
def test_key_file_without_a_key_is_a_usage_error(words, tmp_path, key, code):
    (tmp_path / "key").write_text(key)
    assert main(["mirror", "sync", *words]) == code


def test_stranger_is_not_permitted(words, project):
    project.answer("/mirror/list", Scripted(status=404))
    assert main(["mirror", "sync", *words]) == 8


@pytest.mark.slow
def test_server_fetches_serves_parts_and_stops_at_sigterm(words):
    command = [sys.executable, "-m", "stoilo", "mirror", "serve", *words]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--every", "1"], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            retries = urllib3.Retry(
                60, backoff_factor=0.5, backoff_max=1, status_forcelist=[404]
            )
            got = urllib3.request(
                "GET", f"{url}{DIGEST}", headers={"Range": "bytes=5-9"}, retries=retries
            )
            assert (got.status, got.data) == (206, DATA[5:10])
        finally:
            process.terminate()
        assert process.wait(60) == 0
