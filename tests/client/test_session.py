from __future__ import annotations

from pathlib import Path

import pytest

from stoilo.client.session import Journal, default_journal, entry_now


def test_entries_come_back_newest_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    for number in range(5):
        journal.append(entry_now(f"t{number}", "h:1", "", "d"))
    assert [entry.task_id for entry in journal.read(3)] == ["t4", "t3", "t2"]


def test_torn_and_foreign_lines_are_skipped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    journal.append(entry_now("good", "h:1", "", "d"))
    assert journal.path is not None
    with journal.path.open("ab") as file:
        file.write(b'{"task_id": "torn\n[1]\n{"other": 1}\n\xff\xfe\n')
    assert [entry.task_id for entry in journal.read()] == ["good"]


def test_a_journal_that_cannot_be_written_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file" / "j.jsonl")
    journal.append(entry_now("t", "h:1", "", "d"))
    assert journal.path is None
    assert journal.read() == []


def test_the_users_journal_lies_in_the_state_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_journal().path == tmp_path / "stoilo" / "tasks.jsonl"


def test_only_what_a_server_was_sent_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    for target in ("a:1", "b:1", "a:1"):
        journal.append(entry_now(f"to {target}", target, "", ""))
    assert [entry.task_id for entry in journal.read(5, "b:1")] == ["to b:1"]
