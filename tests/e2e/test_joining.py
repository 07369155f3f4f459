"""From a URL alone: the page's line attaches a computer, a task runs, and is found again."""

from __future__ import annotations

import html
import io
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import stoilo
from stoilo.cli.main import main
from stoilo.client.session import Journal
from stoilo.low_level.redundancy import CreateOptions
from stoilo.testing.deployment import Deployment

pytestmark = pytest.mark.slow


def square(kwargs: dict[str, int]) -> int:
    return kwargs["x"] ** 2


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own server
        return str(answer.read().decode())


def test_stranger_joins_by_the_pages_line_and_finds_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    settings = tmp_path / "data" / "stoilo.toml"
    settings.write_text('purpose = "Squares, for everybody."\n')
    place = ["--data", str(tmp_path / "volunteer")]

    def volunteer(*words: str) -> tuple[int, str]:
        code = main(["volunteer", *words, *place])
        return code, capsys.readouterr().out

    with Deployment(tmp_path / "data") as server:
        assert server.line is not None
        front = read(str(server.line.project))
        assert "<p>Squares, for everybody.</p>" in front
        assert "<dt>tasks finished</dt><dd>0</dd>" in front
        found = re.search(
            r"<pre><code>stoilo volunteer (attach .*)</code></pre>", front
        )
        assert found is not None
        line = shlex.split(html.unescape(found[1]))
        monkeypatch.setattr(sys, "stdin", io.StringIO("a long password\n"))
        more = ["--email", "ann@example.org", "--new-account"]
        assert volunteer(*line, *more)[0] == 0
        command = [sys.executable, "-m", "stoilo.cli.main", "volunteer", "run", *place]
        running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            options = CreateOptions(min_quorum=1)
            with stoilo.connect_sync(
                server.line.connection, journal=Journal(None)
            ) as conn:
                staged: Any = conn.create_task(
                    square, {"x": 7}, redundancy_options=options
                )
                task = staged.submit()
                assert task.result(timeout=120) == 49
        finally:
            running.terminate()
            running.wait(60)
        (row,) = json.loads(volunteer("history", "--json")[1])
        assert (row["run"]["function"], row["run"]["level"]) == ("square", "pure")
        assert (row["run"]["outcome"], row["run"]["elapsed_s"] > 0) == ("ok", True)
        assert row["page"].endswith(f"/audit/task/{task.task_id}")
        assert task.task_id in row["run"]["workunit"]
        entry = re.compile(r'href="/audit/entry/\d')
        assert entry.search(read(row["page"]))
        search, name = f"{server.line.project}audit/search?q=", row["run"]["workunit"]
        assert entry.search(read(f"{search}{name}_0"))
        other = "0" * 32 + name[32:]  # control
        assert not entry.search(read(f"{search}{other}_0"))
