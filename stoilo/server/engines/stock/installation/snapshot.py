"""A project at one moment: what an installation reads, and what runs, waits and answers.

Reading changes nothing. Every part that could not be read says so itself, so that one
fault hides no other. The project's URLs and our socket are asked what clients and scripts
ask; a request to the scheduler has no account, so nobody's host appears by it.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.core.http_client import HttpClient, HttpError
from stoilo.server.engines.stock.app_versions import parse_description
from stoilo.server.engines.stock.installation.facts import (
    ask_database,
    open_file,
    read_facts,
    short_host,
)
from stoilo.server.engines.stock.installation.install import entry_points
from stoilo.server.engines.stock.installation.owner import Owner
from stoilo.server.engines.stock.installation.queues import Queues, read_queues
from stoilo.server.engines.stock.project.database import open_database
from stoilo.server.engines.stock.script_server import ENTRY_POINTS, ask_socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stoilo.server.engines.stock.app_versions import OfferedVersion
    from stoilo.server.engines.stock.installation.facts import ProjectFacts
    from stoilo.server.engines.stock.installation.plan import WriteFile
    from stoilo.server.engines.stock.project.config import Daemon
    from stoilo.server.engines.stock.project.directory import StockProject

TAIL_BYTES: Final = 4096
_LINE: Final = 160
_STOPS: Final = ("stop_daemons", "stop_sched")


@dataclass(frozen=True, slots=True)
class DaemonState:
    """One daemon of config.xml and its process."""

    daemon: Daemon  # as configured
    pid: int  # in its pid file, 0 without one
    alive: bool  # a process of that number runs the daemon's program
    last_words: str = ""  # end of its log, one line, empty without a log


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """What one URL said."""

    url: str
    status: int = 0  # of HTTP, 0 when nothing answered
    body: str = ""  # its beginning
    trouble: str = ""  # why nothing answered


@dataclass(frozen=True, slots=True)
class Space:
    """Room on the disk of one directory, bytes and files."""

    name: str
    total: int
    free: int
    files_free: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A project at one moment."""

    facts: ProjectFacts
    queues: Queues
    entry_points: tuple[WriteFile, ...] = ()  # as they have to lie there
    interpreter: str = ""  # why the project's owner can run none for them
    can_make: bool = True  # BOINC's program that makes workunits can be run
    stop_files: tuple[str, ...] = ()  # names of those that ``bin/stop`` leaves
    cron_age_s: int | None = None  # since ``bin/start --cron`` ran, None: never
    daemons: tuple[DaemonState, ...] = ()  # of this host
    spaces: tuple[Space, ...] = ()  # of the directories that are written
    socket: str = ""  # why nothing answers behind it
    # files of app versions that lie in the download folder: (bytes, MD5)
    programs: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    # what its URLs said, by name; those that were not asked are left out
    web: Mapping[str, WebAnswer] = field(default_factory=dict)


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
        UsageError: ``STO-B001`` when a file cannot be read.
    """
    root, host = project.root, short_host()
    facts = read_facts(project, [f"bin/{name}" for name in ENTRY_POINTS])
    facts, queues = _ask_database(facts, url or project.database_url, clock)
    wanted, interpreter = _entry_points(root)
    offered = facts.database.offered if facts.database else ()
    programs = _programs(project.download, offered)
    return Snapshot(
        facts=facts,
        queues=queues,
        entry_points=wanted,
        interpreter=interpreter,
        can_make=os.access(project.tool("create_work"), os.X_OK),
        stop_files=tuple(name for name in _STOPS if (root / name).exists()),
        cron_age_s=_age(root / f"run_state_{host}.xml"),
        daemons=tuple(
            _state(root, host, daemon)
            for daemon in project.config.daemons
            if (daemon.host or project.config.text("host")) == host
        ),
        spaces=_spaces(project, host),
        socket=ask_socket(project.socket),
        programs=programs,
        web=ask_web(project, programs) if web else {},
    )


def _entry_points(root: Path) -> tuple[tuple[WriteFile, ...], str]:
    try:
        return entry_points(Owner.of(root)), ""
    except UsageError as error:
        return (), error.message


def _ask_database(
    facts: ProjectFacts, url: str, clock: Callable[[], float]
) -> tuple[ProjectFacts, Queues]:
    try:
        with open_database(url, "the database") as connection:
            return ask_database(facts, connection), read_queues(connection, clock)
    except InternalError as error:
        return facts, Queues(trouble=error.message.partition(": ")[2])


def _programs(
    download: Path, offered: Iterable[OfferedVersion]
) -> dict[str, tuple[int, str]]:
    found = {}
    for name in sorted({name for one in offered for name in _file_names(one.xml)}):
        try:
            found[name] = _measure(download / name)
        except OSError:
            continue
    return found


def _file_names(xml: bytes) -> tuple[str, ...]:
    """Return the files of an app version; those with a path are not BOINC's."""
    try:
        infos = parse_description(xml).every("file_info")
        names = [info.string("name") for info in infos]
    except TrustError:
        return ()
    return tuple(name for name in names if name and "/" not in name and name[0] != ".")


def _measure(path: Path) -> tuple[int, str]:
    with open_file(path) as stream:
        md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
        return stream.tell(), md5.hexdigest()


def _age(path: Path) -> int | None:
    try:
        return max(0, int(time.time() - path.stat().st_mtime))
    except OSError:
        return None


def _state(root: Path, host: str, daemon: Daemon) -> DaemonState:
    text = _tail(root / f"pid_{host}" / daemon.pid_name)
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


def _tail(path: Path) -> str:
    """Return the last line of a file that says something, empty without one."""
    try:
        with open_file(path) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LINE] if lines else ""


def _spaces(project: StockProject, host: str) -> tuple[Space, ...]:
    """Return the room where files are written, once for each file system."""
    named = {
        "download": project.download,
        "upload": project.upload,
        "logs": project.root / f"log_{host}",
        "project": project.root,
    }
    found: dict[int, Space] = {}
    for name, path in named.items():
        try:
            device, disk = path.stat().st_dev, os.statvfs(path)
        except OSError:
            continue
        files = disk.f_favail if disk.f_files else 1_000_000  # some count none
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        found.setdefault(device, Space(name, total, free, files))
    return tuple(found.values())


WAIT_S: Final = 20.0
_SCHEDULER: Final = re.compile(
    r'<link rel="boinc_scheduler" href="([^"]+)">|<scheduler>\s*([^<\s]+)\s*</scheduler>'
)
_CLIENT: Final = (
    "<core_client_major_version>7</core_client_major_version>\n"
    "<core_client_minor_version>20</core_client_minor_version>\n"
    "<core_client_release>5</core_client_release>\n"
)
_REQUEST: Final = f"<scheduler_request>\n{_CLIENT}</scheduler_request>\n".encode()
_QUESTION: Final = (
    f"<data_server_request>\n{_CLIENT}"
    "<get_file_size>stoilo_no_such_file</get_file_size>\n</data_server_request>\n"
).encode()


def ask_web(project: StockProject, programs: Iterable[str]) -> dict[str, WebAnswer]:
    """Return what a project's pages say, by name; `programs`: names of files to fetch."""
    config = project.config
    client = HttpClient(read_s=WAIT_S, redirects=5)

    def ask(url: str, body: bytes | None = None) -> WebAnswer:
        """Return what a URL says, its beginning only."""
        if not url:
            return WebAnswer(url, trouble="no address is known")
        method = "GET" if body is None else "POST"
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            with client.open(
                method, url, within_s=WAIT_S, body=body, headers=form
            ) as stream:
                text = next(stream.chunks(), b"").decode("utf-8", "replace")
                return WebAnswer(url, stream.status, text)
        except HttpError as error:
            return WebAnswer(url, trouble=str(error))

    master = ask(config.text("master_url"))
    found = _SCHEDULER.search(master.body)
    answers = {
        "master page": master,
        "scheduler": ask((found[1] or found[2]) if found else "", _REQUEST),
        "upload handler": ask(config.text("upload_url"), _QUESTION),
        "php": ask(f"{master.url}get_project_config.php"),
    }
    if file := next(iter(programs), ""):
        answers["download"] = ask(f"{project.download_url}/{file}")
    client.close()
    return answers
