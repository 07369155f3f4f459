"""A stock BOINC project's folder: what lies where, and BOINC's own programs in it.

    PROJECT/config.xml         see `config`
    PROJECT/bin/               BOINC's own tools, and our scripts
    PROJECT/templates/         input and result templates
    PROJECT/download, upload   files by BOINC's fan-out rule
    PROJECT/stoilo/            ours: the socket for the scripts, results kept until delivered

Names from outside are matched whole before they become a path.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.server.engines.stock.project.config import (
    CONFIG_BYTES,
    ConfigText,
    read_config,
)
from stoilo.server.engines.stock.project.database import LOCAL, find_socket, parse_host

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class StockProject:
    """A project's directory and what its configuration says."""

    root: Path
    config: ConfigText

    @property
    def download(self) -> Path:
        """Return the directory of files for hosts."""
        return Path(self.config.text("download_dir") or self.root / "download")

    @property
    def upload(self) -> Path:
        """Return the directory of files from hosts."""
        return Path(self.config.text("upload_dir") or self.root / "upload")

    @property
    def templates(self) -> Path:
        """Return the directory of templates; ``create_work`` takes paths from the root."""
        return self.root / "templates"

    @property
    def own(self) -> Path:
        """Return the directory that is ours alone."""
        return self.root / "stoilo"

    @property
    def socket(self) -> Path:
        """Return the socket behind which results are judged."""
        return self.own / "validate.sock"

    @property
    def key_dir(self) -> Path:
        """Return the directory of BOINC's keys."""
        return Path(self.config.text("key_dir") or self.root / "keys").resolve()

    @property
    def fanout(self) -> int:
        """Return how many directories are below download and upload; 0: none."""
        return int(self.config.number("uldl_dir_fanout"))

    @property
    def download_url(self) -> str:
        """Return where hosts get files, without final slash."""
        return self.config.text("download_url").rstrip("/")

    def tool(self, name: str) -> Path:
        """Return one of BOINC's programs."""
        return self.root / "bin" / name

    @property
    def database_url(self) -> str:
        """Return the SQLAlchemy URL of the project's database, password included."""
        config = self.config
        host, port = parse_host(config.text("db_host"), socket.gethostname())
        place = find_socket(os.environ, os.path.exists) if host == LOCAL else ""
        url = URL.create(
            "mariadb+pymysql",
            username=config.text("db_user") or None,
            password=config.text("db_passwd") or None,
            host=host,
            port=None if host == LOCAL else port or None,
            database=config.text("db_name"),
            query={"unix_socket": place} if place else {},
        )
        return url.render_as_string(hide_password=False)


def read_project(root: Path) -> StockProject:
    """Return the project in a directory.

    Raises:
        UsageError: ``STO-B001`` when there is none that can be read.
        TrustError: ``STO-B001`` when its ``config.xml`` is not one.
    """
    try:
        with (root / "config.xml").open("rb") as stream:
            data = stream.read(CONFIG_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "STO-B001",
            f"no BOINC project can be read there ({error.strerror})",
            hint="give the directory that make_project has made, with its config.xml",
        ) from error
    return StockProject(root.resolve(), read_config(data))


_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}")
_OUTPUT: Final = re.compile(
    r"(?P<result>[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}_\d{1,9})_r\d{1,20}_0"
)
_LONGEST_NAME: Final = 4096


@dataclass(frozen=True, slots=True)
class OutputName:
    """The file that a host uploads for a result."""

    name: str  # of the file; its random part keeps hosts from uploading others' results
    result: str  # BOINC's name of the result


def fan_out(name: str, fanout: int) -> str:
    """Return the folder of a file, empty where there are none (``fanout`` 0)."""
    if not fanout:
        return ""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return f"{int(digest[1:8], 16) % fanout:x}"


def place(root: Path, name: str, fanout: int) -> Path:
    """Return where the file called `name` lies below `root`.

    Raises:
        TrustError: ``STO-B003`` for what is no file name.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise TrustError("STO-B003", "that is no name of a project's file")
    return root / fan_out(name, fanout) / name


def output_of(path: str) -> OutputName:
    """Return whose result a path that BOINC's daemons gave us is.

    Only the last part counts: where the file lies follows from it.

    Raises:
        TrustError: ``STO-B003``.
    """
    name = PurePosixPath(path[:_LONGEST_NAME]).name
    match = _OUTPUT.fullmatch(name)
    if match is None or len(path) > _LONGEST_NAME:
        raise TrustError("STO-B003", "that is no name of a result's file")
    return OutputName(name, match["result"])


_TIME_S: Final = 120
_KEPT_CHARS: Final = 300
# Of our environment; the rest may hold passwords, and is none of BOINC's business.
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")


def create_work(
    project: StockProject, arguments: Sequence[str], lines: Sequence[str]
) -> None:
    """Make workunits, one for each line; raises ``STO-B005``, perhaps half-way."""
    try:
        done = subprocess.run(
            [str(project.tool("create_work")), *arguments],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            errors="replace",
            cwd=project.root,
            env=tool_environment(project.root),
            timeout=_TIME_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InternalError(
            "STO-B005", f"create_work could not be run ({type(error).__name__})"
        ) from error
    if done.returncode:
        said = " | ".join(done.stderr.split("\n")).strip(" |")[-_KEPT_CHARS:]
        raise InternalError("STO-B005", f"create_work exited {done.returncode}: {said}")


def tool_environment(root: Path) -> dict[str, str]:
    """Return what one of BOINC's programs is started with."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "BOINC_PROJECT_DIR": str(root)}
