"""Drill: a backup is put back over a log that has grown since."""

from __future__ import annotations

from pathlib import Path

from tests.drills.project import DrillHost, DrillProject
from tests.drills.report import Drill, Notes
from tests.drills.thief import Thief

__all__ = ["RESTORED_BACKUP"]

PARTS = {
    "the log's database": ("audit/log.sqlite", "audit/log.sqlite-wal"),
    "the published files": ("audit/log",),
    "the head database": ("audit-head",),
    "the log with all its parts": ("audit", "audit-head"),
    "the log and the server's database": (
        "audit",
        "audit-head",
        "server.sqlite",
        "server.sqlite-wal",
    ),
}
EVERYTHING = ("audit", "audit-head", "server.sqlite", "server.sqlite-wal",
              "revocations", "keys", "engine")  # fmt: skip
DIGEST = "d" * 64


def run(notes: Notes, folder: Path, defended: bool) -> None:
    """Put back each part by itself, then everything, and see who notices."""
    project = DrillProject(folder / "project")
    with project.running():
        pass
    old = project.keep("backup")
    with project.running():
        grown = project.withdraw("--digest", DIGEST)
        notes.expect("the log grows after the backup", grown)
        after = project.checkpoint()
    new = project.keep("today")
    followed, _ = project.watch(folder / "monitor")
    notes.expect("a monitor follows it", followed == 0, f"exit {followed}")
    host = DrillHost(
        folder / "host", (project.data / "keys" / "root.json").read_bytes()
    )
    try:
        _meet(host, project)
        if defended:
            _restore_parts(notes, project, old, new)
        project.restore(old, *EVERYTHING)
        notes.notice()
        monitor = folder / ("monitor" if defended else "forgetful")
        _restored_whole(notes, project, host, monitor, defended=defended)
        project.restore(new, *EVERYTHING)
        code = project.try_start()
        text = "with today's files in place again, the server goes on"
        notes.expect(text, code == "" and project.checkpoint().size >= after.size, code)
    finally:
        host.close()


def _meet(host: DrillHost, project: DrillProject) -> None:
    """Let the host see today's statement, whatever it thinks of the work."""
    thief = Thief(project)
    packet = thief.packet(thief.statement("any"), b"", project.revocations())
    host.take(packet)


def _restore_parts(notes: Notes, project: DrillProject, old: Path, new: Path) -> None:
    """Restore one part at a time; the server must refuse and change nothing."""
    for what, parts in PARTS.items():
        project.restore(old, *parts)
        before = project.note()
        code = project.try_start()
        text = f"with {what} of the backup the server does not start"
        notes.expect(text, code.startswith("STO-L0"), code)
        notes.expect("and signs nothing", project.note() == before)
        project.restore(new, *EVERYTHING)


def _restored_whole(
    notes: Notes,
    project: DrillProject,
    host: DrillHost,
    monitor: Path,
    *,
    defended: bool,
) -> None:
    """Restore all of it: from inside nothing can show, so others must remember."""
    with project.running():
        project.withdraw("--digest", "e" * 64)
        thief = Thief(project)
        packet = thief.packet(thief.statement("any"), b"", project.revocations())
        exit_code, found = project.watch(monitor)
    if defended:
        code = host.take(packet)
        text = "a volunteer who has seen today's statement refuses the older project"
        notes.expect(text, code == "STO-A076", code)
    text = "the monitor proves that the log has signed two histories"
    if notes.expect(text, "fork" in found, f"exit {exit_code}"):
        notes.contain()


RESTORED_BACKUP = Drill(
    name="restored-backup",
    title="a backup is put back over a log that has grown since",
    bound=(
        "One part, or the log without keys/state, is refused at the start. A backup of "
        "everything, keys/state too, cannot be told from the inside: it is noticed by "
        "witnesses at its first checkpoint, by a monitor at its next poll, and by each "
        "volunteer at his next workunit."
    ),
    defence="everybody's memory of what was there after the backup",
    run=run,
)
