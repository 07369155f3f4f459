"""A bundle behind a plain web server is a log like any other."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.audit.format.policy import render_policy
from stoilo.audit.read.export import export_log
from stoilo.audit.read.reader import open_log, verify_log
from stoilo.audit.read.search import find_entries, parse_query, search_log
from stoilo.cli.main import main
from tests.support.auditlog import SAMPLE_SOURCE, SampleLog


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *values: object) -> None:
        del values


@pytest.fixture(scope="module")
def url(sample: SampleLog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    export_log(sample.data_dir, folder / "bundle", sample.policy, sources=None)
    proof = open_log(sample.data_dir).entry(sample.admissions[0] + 1).proof
    (folder / "one.tlog-proof").write_bytes(proof)
    (folder / "policy.txt").write_bytes(render_policy(sample.policy))
    handler = functools.partial(QuietHandler, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_bundle_verifies_over_http(sample: SampleLog, url: str) -> None:
    assert verify_log(f"{url}bundle", sample.policy).size == sample.size


def test_entries_over_http_are_those_of_the_log(sample: SampleLog, url: str) -> None:
    log, far = open_log(sample.data_dir), open_log(f"{url}bundle", sample.policy)
    first = sample.admissions[1]
    for index in (0, first, first + 1, sample.size - 1):
        assert far.entry(index) == log.entry(index)
    assert find_entries(far, "task-1") == [first, first + 1, first + 2]
    query = parse_query(["kind:refusals"])
    assert search_log(far, query) == search_log(log, query)
    assert far.source.published_source(sample.source) == SAMPLE_SOURCE


def test_log_is_exported_from_afar(sample: SampleLog, url: str, tmp_path: Path) -> None:
    export_log(f"{url}bundle", tmp_path / "far", sample.policy, sources=None)
    export_log(sample.data_dir, tmp_path / "near", sample.policy, sources=None)
    near, far = (
        {
            str(path.relative_to(tmp_path / name)): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("near", "far")
    )
    assert near == far


def test_one_command_fetches_and_checks_an_entry(
    sample: SampleLog, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy").write_bytes(render_policy(sample.policy))
    words = ["check", f"{url}one.tlog-proof", "--policy", str(tmp_path / "policy")]
    source = f"{url}bundle/source/{sample.source}"
    entry = open_log(sample.data_dir).entry(sample.admissions[0] + 1)
    assert entry.leaf is not None
    record = f"{url}bundle/records/{entry.leaf.digest}"
    assert main(["audit", *words, "--record", record, "--source", source]) == 0
    assert "public_source: true" in capsys.readouterr().out
    assert main(["audit", "check", f"{url}absent", *words[2:]]) == 7
