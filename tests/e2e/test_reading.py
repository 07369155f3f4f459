"""A stranger reads the log of a real server: by URL, then from a bundle without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoilo.audit.format.proof import LeafKind
from stoilo.audit.read.reader import open_log
from stoilo.audit.read.search import parse_query, search_log
from stoilo.cli.main import main
from stoilo.core.codec.skeleton import encode
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

SOURCE = b"def shown(kwargs):\n    return kwargs['x'] * 2\n"
SECRET = b"def hidden_entry(kwargs):\n    return 'hidden marker'\n"


@dataclass
class Server:
    """A running server with two finished tasks, and its key as taken from elsewhere."""

    url: str
    policy: str
    shown: str
    hidden: str
    data: Path


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., object]
) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("reading") / "data"
    deployment = Deployment(data, volunteers=2)
    with deployment, RawClient(data / "connection.json") as client:
        shown = client.submit(
            task_module=SOURCE,
            entry="shown",
            arguments=encode({"x": 21}),
            publish_source=True,
        )
        hidden = client.submit(task_module=SECRET, entry="hidden_entry")
        client.wait(shown), client.wait(hidden)
        assert deployment.line is not None
        url = deployment.line.http
        policy = data.with_name("policy.txt")
        policy.write_bytes((data / "audit/log/policy.txt").read_bytes())
        query = parse_query([f"kind:{LeafKind.RESULT}"])
        wait_until(lambda: len(search_log(open_log(url), query).found) == 2)
        yield Server(url, str(policy), shown, hidden, data)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return what a command prints with ``--json``; it must succeed."""
    capsys.readouterr()
    assert main(["audit", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_researcher_finds_all_of_his_task(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", server.url, "--policy", server.policy]
    shown = answer(capsys, "show", server.shown, *where, "--source")["entries"]
    assert [one["kind"] for one in shown] == ["admission", "workunit", "result"]
    assert shown[0]["record_index"] == shown[1]["index"]
    assert shown[1]["source"] == SOURCE.decode()
    assert shown[2]["record"]["state"] == "succeeded"
    hidden = answer(capsys, "show", server.hidden, *where, "--source")["entries"]
    assert all(one["source"] is None for one in hidden)


def test_one_command_verifies_an_entry_of_the_pages(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", server.url, "--policy", server.policy]
    entry = answer(capsys, "show", server.shown, *where)["entries"][1]
    record, source = entry["digest"], entry["record"]["source"]
    found = answer(
        capsys,
        "check",
        f"{server.url}audit/entry/{entry['index']}.tlog-proof",
        *("--policy", server.policy),
        *("--record", f"{server.url}audit/records/{record}"),
        *("--source", f"{server.url}audit/source/{source}"),
    )
    assert (found["verified"], found["index"]) == (True, entry["index"])


@pytest.mark.parametrize("place", ["url", "data"])
def test_bundle_says_the_same_and_nothing_private(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    target = str(tmp_path / "log")
    origin = server.url if place == "url" else str(server.data)
    words = ["--data", origin, "--policy", server.policy, "--sources", "all"]
    report = answer(capsys, "export", target, *words)
    assert (report["missing"], report["sources"]) == (0, 1)
    assert main(["audit", "verify", target, "--policy", server.policy]) == 0
    copy = answer(capsys, "show", server.shown, "--data", target)
    far = answer(capsys, "show", server.shown, "--data", server.url)
    assert [one["leaf"] for one in copy["entries"]] == [
        one["leaf"] for one in far["entries"]
    ]
    files = [one for one in Path(target).rglob("*") if one.is_file()]
    content = b"\n".join(str(one).encode() + one.read_bytes() for one in files)
    private = [server.shown, server.hidden, "hidden", str(server.data)]
    assert [word for word in private if word.encode() in content] == []
    assert SOURCE in content  # control: what is public is there as it is
