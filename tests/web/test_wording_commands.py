"""The commands that the pages show do what the pages say they do."""

import html
import re
import shlex

import pytest

from stoilo.audit.format.policy import render_policy
from stoilo.cli.main import main
from stoilo.web import wording as commands
from tests.support.archive import ORIGIN
from tests.support.faulty_log import LogKey

URL = "http://pages.test/"


@pytest.fixture
def run(get, archive, tmp_path, monkeypatch):
    """Run the command that a page shows, with the log's policy from elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.txt").write_bytes(render_policy(archive[1].policy))

    def runner(path, verb, change=lambda text: text):
        text = html.unescape(get(path).text)
        (command,) = re.findall(rf"<code>stoilo (audit {verb} [^<]*)</code>", text)
        return main(shlex.split(change(command.replace("\\\n", ""))))

    return runner


@pytest.mark.parametrize("path", ["/audit/entry/0", "/audit/entry/8", "/audit/task/pi"])
def test_check_command_of_a_page_verifies(run, path, capsys):
    assert run(path, "check") == 0
    assert capsys.readouterr().out


def test_check_command_takes_proof_record_and_source(get):
    text = html.unescape(get("/audit/task/pi").text)
    (command,) = re.findall(r"stoilo audit check [^<]*</code>", text)
    assert [word for word in shlex.split(command) if word.startswith("--")] == [
        "--policy",
        "--record",
        "--source",
    ]


def test_check_command_fails_for_another_source(run, get, capsys):
    other = re.search(r"/audit/source/([0-9a-f]{64})", get("/audit/task/hostile").text)

    def change(command):
        return re.sub(
            r"/audit/source/[0-9a-f]{64}", f"/audit/source/{other[1]}", command
        )

    assert run("/audit/task/pi", "check", change) == 4
    assert "STO-" in capsys.readouterr().err


def test_check_command_fails_under_another_key(run, tmp_path, capsys):
    (tmp_path / "policy.txt").write_bytes(
        render_policy(LogKey(ORIGIN, b"\5" * 32).policy)
    )
    assert run("/audit/entry/8", "check") == 4
    assert "STO-L011" in capsys.readouterr().err


def test_show_command_of_a_task_page_shows_its_entries(run, capsys):
    assert run("/audit/task/pi", "show") == 0
    assert "workunit" in capsys.readouterr().out.lower()


def test_verify_command_of_the_overview_verifies(run, capsys):
    assert run("/audit/", "verify") == 0
    assert "22 leaves" in capsys.readouterr().out


def test_url_cannot_add_a_command():
    shown = commands.check_command("http://x.test/;rm -rf ~/", 1)
    assert shlex.split(shown)[3] == "http://x.test/;rm -rf ~/audit/entry/1.tlog-proof"
