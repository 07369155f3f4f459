"""What the shell gets: a line that completes, what it completes to, manual pages."""

import shutil
import subprocess
import sys

import click
import pytest

from stoilo.cli import shell
from stoilo.cli.main import cli, main
from stoilo.client.session import Journal, JournalEntry


def completed(monkeypatch, capsys, *words):
    """Return what bash offers for the last of `words`."""
    monkeypatch.setenv("_STOILO_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["stoilo", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        cli.main(args=[], prog_name="stoilo", standalone_mode=False)
    return [line[6:] for line in capsys.readouterr().out.split("\n") if line]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["comp"], ["completion"]),
        (["policy", "rev"], ["review"]),
        (["policy", "check", "--lev"], ["--level"]),
        (["policy", "check", "--level", "n"], ["numeric"]),
        (["task", "submit", "--flavor", "nu"], ["numeric"]),
        (["explain", "STO-U00"], [f"STO-U00{number}" for number in range(2, 7)]),
        (["sandbox", "run", "--level", "xyz"], []),
    ],
    ids=str,
)
def test_what_is_begun_is_completed(monkeypatch, capsys, words, found):
    assert completed(monkeypatch, capsys, *words) == found


def test_tasks_sent_from_here_are_completed(monkeypatch, capsys, tmp_path):
    journal = Journal(tmp_path / "tasks.jsonl")
    for name in ("abc1", "abd2"):
        journal.append(JournalEntry(name, "host:1", "", "00", 0))
    monkeypatch.setattr("stoilo.client.session.default_journal", lambda: journal)
    assert completed(monkeypatch, capsys, "task", "status", "abc") == ["abc1"]
    assert completed(monkeypatch, capsys, "task", "cancel", "") == ["abd2", "abc1"]


def test_error_of_a_completion_stays_out_of_the_line(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(["boinc", "hosts"]) == 2
    assert "STO-U002" in capsys.readouterr().err
    monkeypatch.setenv("_STOILO_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "stoilo boinc ")
    monkeypatch.setenv("COMP_CWORD", "2")
    main([])
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_printed_line_makes_bash_complete(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    line = capsys.readouterr().out
    program = tmp_path / "stoilo"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stoilo.cli.main "$@"\n')
    program.chmod(0o755)
    script = f'PATH="{tmp_path}:$PATH"\n{line}\ncomplete -p stoilo\n'
    said = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith("complete ")


def test_own_shell_is_known(monkeypatch, capsys):
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["completion"]) == 0
    shown = capsys.readouterr()
    assert (shown.out.count("\n"), "config.fish" in shown.err) == (1, True)
    monkeypatch.setenv("SHELL", "/bin/other")
    assert main(["completion"]) == 2


def test_page_has_every_option_and_command(capsys):
    assert main(["man", "policy"]) == 0
    page = capsys.readouterr().out
    for command in ("check", "review", "show"):
        assert f".B stoilo policy {command}" in page
    assert main(["man", "policy", "check"]) == 0
    assert ".B \\-\\-level TEXT" in capsys.readouterr().out


def test_page_of_no_command_is_refused(capsys):
    assert main(["man", "task", "status", "more"]) == 2
    assert "STO-U003" in capsys.readouterr().err


def test_every_command_has_a_page_that_roff_takes_whole(tmp_path):
    assert main(["man", "--all", str(tmp_path)]) == 0
    pages = {page.name: page.read_text() for page in tmp_path.iterdir()}
    assert {"stoilo.1", "stoilo-policy-review-sign.1"} <= pages.keys()
    known = {".TH", ".SH", ".PP", ".TP", ".B"}
    for text in pages.values():
        begun = {
            line.split(" ")[0]
            for line in text.splitlines()
            if line.startswith((".", "'"))
        }
        assert begun <= known


def test_text_cannot_become_a_request_of_roff():
    @click.command(help="First.\n\n.so /etc/passwd\n'tricky \\X'x'")
    def odd():
        """Nothing."""

    page = shell.render_page(click.Context(odd, info_name="odd"))
    assert "\n.so" not in page
    assert "\\&.so /etc/passwd" in page
    assert "\\&'tricky \\eX'x'" in page
