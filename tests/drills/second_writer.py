"""Drill: two processes write one log."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.core.digests import content_digest
from tests.drills.project import CODE, DrillProject
from tests.drills.report import Drill, Notes
from tests.support.faulty_log import LogKey

__all__ = ["ORIGIN", "SECOND_WRITER", "drill_leaf"]

ORIGIN = "drill.example/two-writers"
COMMAND_S = 60.0
TURNS = 3


def drill_leaf(text: str) -> bytes:
    """Return a leaf that says nothing but `text`."""
    return render_leaf(Leaf(LeafKind.OPERATOR, content_digest(text.encode()), "1", 1))


def run(notes: Notes, folder: Path, defended: bool) -> None:
    """Start a second server; then take the locks away and let two writers race."""
    project = DrillProject(folder / "project")
    if defended:
        with project.running():
            second = DrillProject(project.data)
            code = second.try_start()
            notes.expect("a second server does not start", code == "STO-R070", code)
            code = _second_signer(project.data / "keys", folder / "signer.sock")
            text = "nor does a second signer, whatever becomes of the server's lock"
            notes.expect(text, code == "STO-K029", code)
    _race(notes, folder / "raced", defended=defended)


def _second_signer(keys: Path, socket: Path) -> str:
    """Return the code with which a second signer of a release gives up."""
    words = ["--keys", str(keys), "--socket", str(socket)]
    done = subprocess.run(
        [sys.executable, "-m", "stoilo.signer.process", *words],
        check=False,
        capture_output=True,
        timeout=COMMAND_S,
    )
    codes = CODE.findall(done.stderr.decode("utf-8", "replace"))
    return codes[-1] if codes else f"exit {done.returncode}"


def _race(notes: Notes, data: Path, *, defended: bool) -> None:
    """Let two real processes take turns, one of them on a copy of the log's files.

    So no lock and no shared database is in the way of either: only the head database.
    """
    data.mkdir(mode=0o700)
    first = _Writer(data, "first", defended=defended)
    second = None
    try:
        first.append(0)
        first.close()
        second = _Writer(_copy(data), "second", defended=defended)
        first = _Writer(data, "first", defended=defended)
        notes.notice()
        answers: list[tuple[str, str]] = []
        for turn in range(1, TURNS + 1):
            answers += [(one.name, one.append(turn)) for one in (first, second)]
    finally:
        first.close()
        if second is not None:
            second.close()
    places = [int(said) for _, said in answers if said.isdecimal()]
    refused = {said for _, said in answers if not said.isdecimal()}
    text = "no two different leaves were acknowledged at one place"
    single = notes.expect(text, len(set(places)) == len(places), f"{sorted(places)}")
    text = "one of the writers was stopped"
    stopped = notes.expect(text, bool(refused), ", ".join(sorted(refused)))
    checked = _verify(data)
    if notes.expect("the published log holds", checked == 0, f"exit {checked}"):
        _contain(notes, held=single and stopped)


def _copy(data: Path) -> Path:
    """Return a copy of a resting log, which shares the head database with it."""
    copy = data.with_name(f"{data.name}-copy")
    copy.mkdir(mode=0o700)
    shutil.copytree(data / "audit", copy / "audit")
    (copy / "audit-head").symlink_to(data / "audit-head")
    return copy


def _contain(notes: Notes, *, held: bool) -> None:
    if held:
        notes.contain()


def _verify(data: Path) -> int:
    """Return the exit code of ``stoilo audit verify``."""
    vkey = LogKey(ORIGIN).vkey
    command = [sys.executable, "-m", "stoilo", "audit", "verify", str(data)]
    done = subprocess.run(
        [*command, "--policy", vkey],
        check=False,
        capture_output=True,
        timeout=COMMAND_S,
    )
    return done.returncode


class _Writer:
    """A real process that writes the log when told to."""

    def __init__(self, data: Path, name: str, *, defended: bool) -> None:
        self.name = name
        words = [str(data), name] + ([] if defended else ["--blind"])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.drills.writer", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def append(self, turn: int) -> str:
        """Append one leaf; returns its place, or the code of the refusal."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{turn}\n")
            self._process.stdin.flush()
        except OSError:
            return "gone"
        return self._read()

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(COMMAND_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip() or "gone"


SECOND_WRITER = Drill(
    name="second-writer",
    title="two processes write one log",
    bound=(
        "The second one's first append: the head database is changed only by whoever "
        "knows its present head. A leaf that was refused was never acknowledged."
    ),
    defence="the comparison with the head database",
    run=run,
)
