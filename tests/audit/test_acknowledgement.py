"""Acknowledged means flushed in both databases: what the kernel was asked, by strace."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

STRACE = shutil.which("strace")
WRITER = Path(__file__).parent / "programs" / "traced_writer.py"
LEAVES = 60

pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace")

_CALL = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>)(.*)")
_FILE = re.compile(r"\d+<([^>]*)>")


@dataclass(frozen=True)
class Call:
    """A system call as strace saw it; `began` and `ended` are line numbers."""

    name: str
    file: str
    text: str
    began: int
    ended: int


def read_calls(trace: Path) -> Iterator[Call]:
    """Yield the calls that succeeded, those cut in two by another thread joined."""
    begun: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(trace.read_text().splitlines()):
        match = _CALL.match(line)
        if match is None:
            continue
        thread, name, text = match.groups()
        start = number
        if text.endswith("<unfinished ...>"):
            begun[thread] = (number, text)
            continue
        if " resumed>" in line[:60]:
            start, before = begun.pop(thread)
            text = before + text
        file = _FILE.match(text)
        if file and re.search(r"= \d+$", text):
            yield Call(name, Path(file[1]).name, text, start, number)


def unflushed_acks(calls: list[Call]) -> list[str]:
    """Return the leaves acknowledged before both databases had flushed them, in order."""
    bad = []
    acks = [
        call for call in calls if '"ack leaf-' in call.text and call.name == "write"
    ]
    assert len(acks) == LEAVES
    for ack in acks:
        leaf = re.search(r"leaf-\d{3}", ack.text)[0]
        before = [call for call in calls if call.ended < ack.began]
        stored = next(
            call.ended
            for call in before
            if (call.name, call.file) == ("pwrite64", "log.sqlite-wal")
            and leaf in call.text
        )
        logged = flush_after(before, "log.sqlite-wal", stored)
        moved = next(
            (
                call.ended
                for call in before
                if (call.name, call.file) == ("pwrite64", "head.sqlite-wal")
                and logged is not None
                and call.began > logged
            ),
            None,
        )
        if moved is None or flush_after(before, "head.sqlite-wal", moved) is None:
            bad.append(leaf)
    return bad


def flush_after(calls: list[Call], file: str, line: int) -> int | None:
    """Return where a flush of `file` ended that began after `line`."""
    flushes = [call for call in calls if call.name in {"fsync", "fdatasync"}]
    return next(
        (one.ended for one in flushes if one.file == file and one.began > line), None
    )


def trace_writer(tmp_path: Path, *options: str) -> list[Call]:
    trace = tmp_path / "trace"
    command = [STRACE, "-f", "-y", "-s", "8192", "-o", str(trace)]
    command += ["-e", "trace=write,pwrite64,fsync,fdatasync", sys.executable]
    command += [str(WRITER), str(tmp_path / "data"), *options]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert done.stdout.endswith(b"done\n")
    return list(read_calls(trace))


def test_leaf_is_acknowledged_only_after_both_databases_are_flushed(
    tmp_path: Path,
) -> None:
    assert unflushed_acks(trace_writer(tmp_path)) == []


@pytest.mark.parametrize("database", ["log", "head"])
def test_database_that_does_not_flush_is_noticed(tmp_path: Path, database: str) -> None:
    """The control: the same trace of a writer that flushes only one of the two."""
    assert len(unflushed_acks(trace_writer(tmp_path, database))) > LEAVES // 2
