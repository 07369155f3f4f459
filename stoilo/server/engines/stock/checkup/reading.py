"""Reads a snapshot of a project: files, processes, disk, socket; changes nothing."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.checkup.database import read_database
from stoilo.server.engines.stock.checkup.probes import ask_socket, ask_web
from stoilo.server.engines.stock.checkup.snapshot import (
    DaemonState,
    EntryPoint,
    Snapshot,
    Space,
)
from stoilo.server.engines.stock.installation.facts import (
    open_file,
    read_bounded,
    read_mode,
    search_keys,
    short_host,
)
from stoilo.server.engines.stock.installation.levels import (
    PREFERENCES_FILE,
    render_preferences,
)
from stoilo.server.engines.stock.installation.owner import Owner, try_interpreter
from stoilo.server.engines.stock.installation.plan import CONFIG_FILE, PLAN_CLASS_FILE
from stoilo.server.engines.stock.scripts.server import ENTRY_POINTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.server.engines.stock.project.config import Daemon
    from stoilo.server.engines.stock.project.directory import StockProject


TAIL_BYTES: Final = 4096
_LINE: Final = 160
_STOPS: Final = ("stop_daemons", "stop_sched")
_TOOLS: Final = ("create_work", "cancel_jobs")
_CHANGE: Final = re.compile(rb'array\((\d{1,9}), *"update_')
_DIGITS: Final = 9
_PLACES: Final = (CONFIG_FILE, "download", "upload", "templates", "stoilo")


def read_snapshot(
    project: StockProject,
    *,
    web: bool = True,
    url: str = "",
    clock: Callable[[], float] = time.time,
) -> Snapshot:
    """Return what a project is like at this moment.

    Args:
        project: of `read_project`.
        web: ask its URLs too, on the addresses in config.xml.
        url: of its database (SQLAlchemy form), if another than config.xml names.
        clock: of the project, s since 1970; files have the machine's.

    Raises:
        UsageError: ``STO-B024`` when a file cannot be read.
    """
    root, host = project.root, short_host()
    config = project.config
    database = read_database(url or project.database_url, project.download, clock)
    keys = project.key_dir
    page = read_bounded(root / PREFERENCES_FILE)
    modes = {name: mode for name in _PLACES if (mode := read_mode(root / name))}
    return Snapshot(
        now=int(clock()),
        host=host,
        config=config,
        modes=modes,
        closed_folders=_closed_folders(project.download),
        plan_classes=(read_bounded(root / PLAN_CLASS_FILE) or b"").decode(
            "utf-8", "replace"
        ),
        preferences_page=page == render_preferences().encode(),
        keys=search_keys(project),
        code_sign_key=(read_bounded(keys / "code_sign_public") or b"").decode(
            "ascii", "replace"
        ),
        upload_key=read_mode(keys / "upload_private"),
        stop_files=tuple(name for name in _STOPS if (root / name).exists()),
        cron_age_s=_age(root / f"run_state_{host}.xml"),
        daemons=tuple(
            _state(root, host, daemon)
            for daemon in config.daemons
            if (daemon.host or config.text("host")) == host
        ),
        database=database,
        tables=_read_tables(root),
        web=ask_web(project, database) if web else None,
        spaces=_spaces(project, host),
        templates=_templates(project.templates),
        entry_points=tuple(
            _tried(root, _entry_point(root, name)) for name in ENTRY_POINTS
        ),
        tools=tuple(_entry_point(root, name) for name in _TOOLS),
        socket=ask_socket(project.socket),
    )


def _closed_folders(download: Path) -> tuple[str, ...]:
    try:
        group = download.stat().st_gid
        with os.scandir(download) as entries:
            folders = {one.name: one.stat() for one in entries if one.is_dir()}
    except OSError:
        return (".",)
    closed = [name for name, found in folders.items() if not _is_open(found, group)]
    return tuple(sorted(closed))


def _is_open(found: os.stat_result, group: int) -> bool:
    theirs = stat.S_IRGRP | stat.S_IXGRP
    for_all = stat.S_IROTH | stat.S_IXOTH
    return found.st_mode & for_all == for_all or (
        found.st_gid == group and found.st_mode & theirs == theirs
    )


def _read_tables(root: Path) -> tuple[int, int] | None:
    there = (read_bounded(root / "db_revision") or b"").strip()
    changes = read_bounded(root / "html" / "ops" / "db_update.php") or b""
    known = [int(number) for number in _CHANGE.findall(changes)]
    if not known or not there.isdigit():
        return None
    return int(there[:_DIGITS]), max(known)


def _age(path: Path) -> int | None:
    """Return how long ago a file was written, s; None without one."""
    try:
        return max(0, int(time.time() - path.stat().st_mtime))
    except OSError:
        return None


def _state(root: Path, host: str, daemon: Daemon) -> DaemonState:
    text = _small(root / f"pid_{host}" / daemon.pid_name).strip()
    pid = int(text) if text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004 - digits
    return DaemonState(
        daemon,
        pid,
        alive=pid > 0 and _runs(pid, daemon.program),
        last_words=_tail(root / f"log_{host}" / daemon.log_name),
    )


def _runs(pid: int, program: str) -> bool:
    """Whether process `pid` runs a program of that name; a number may be used again."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    words = command.split(b"\0")[:3]
    return any(word.rpartition(b"/")[2] == program.encode() for word in words)


def _small(path: Path) -> str:
    try:
        with open_file(path) as stream:
            return stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _tail(path: Path) -> str:
    try:
        with open_file(path) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LINE] if lines else ""


def _spaces(project: StockProject, host: str) -> tuple[Space, ...]:
    named = (
        ("download", project.download),
        ("upload", project.upload),
        ("logs", project.root / f"log_{host}"),
        ("project", project.root),
    )
    found: dict[int, Space] = {}
    for name, path in named:
        try:
            device, status = path.stat().st_dev, os.statvfs(path)
        except OSError:
            continue
        total, free = (
            status.f_blocks * status.f_frsize,
            status.f_bavail * status.f_frsize,
        )
        files = status.f_favail if status.f_files else 1_000_000  # some count none
        found.setdefault(device, Space(name, total, free, files))
    return tuple(found.values())


def _templates(folder: Path) -> dict[str, str]:
    return {path.name: _small(path) for path in sorted(folder.glob("stoilo_*"))}


def _entry_point(root: Path, name: str) -> EntryPoint:
    path = root / "bin" / name
    return EntryPoint(name, path.is_file(), os.access(path, os.X_OK))


def _tried(root: Path, point: EntryPoint) -> EntryPoint:
    if not point.present:
        return point
    first = _small(root / "bin" / point.name).partition("\n")[0]
    words = first.removeprefix("#!").split(maxsplit=1)
    if not first.startswith("#!") or not words:
        return replace(point, trouble="its first line names no interpreter")
    owner = Owner.of(root)
    trouble = try_interpreter(words, owner)
    if not trouble:
        return point
    return replace(point, trouble=f"user {owner.uid} cannot run {words[0]}: {trouble}")
