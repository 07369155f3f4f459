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
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.executor.xmltext import XmlBounds, parse_xml
from stoilo.server.engines.stock.project.database import find_socket, parse_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.executor.xmltext import Element


__all__ = [
    "ConfiguredDaemon",
    "OutputName",
    "ProjectConfig",
    "StockProject",
    "Tools",
    "fan_out",
    "output_of",
    "parse_config",
    "place",
    "read_project",
    "tool_environment",
]


CONFIG_BYTES: Final = 256 * 1024
"""Real ones have some 4 KiB."""

_BOUNDS: Final = XmlBounds(CONFIG_BYTES, depth=8, elements=5000)
_FANOUT: Final = 1024
_LARGEST_FANOUT: Final = 65_536
_HOUR_S: Final = 3600
_LONGEST_PATH: Final = 1024


@dataclass(frozen=True, slots=True)
class ConfiguredDaemon:
    """One ``<daemon>`` of ``config.xml``.

    Attributes:
        command: program and arguments, as ``bin/start`` runs them below ``bin``.
        disabled: it is listed and not started.
        output: name of its log; daemons of one program need distinct ones.
        pid_file: the same for its pid.
    """

    command: str
    disabled: bool = False
    output: str = ""
    pid_file: str = ""


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """What we need of ``config.xml``; empty or 0 where it says nothing.

    Attributes:
        long_name: shown to volunteers.
        host: where its daemons run (short host name).
        master_url: what volunteers attach to.
        db_host: as BOINC reads it (`dbhost`); empty: this machine.
        db_name: database.
        db_user: account with all rights to it.
        db_passwd: its password; secret.
        download_dir: absolute; files for hosts.
        download_url: of it, without final slash.
        upload_dir: absolute; files from hosts.
        upload_url: of the upload handler.
        key_dir: where BOINC's keys are.
        fanout: directories below download and upload; 0: files lie flat.
        cache_md5_info: ``create_work`` believes ``NAME.md5``.
        one_result_per_user_per_wu: nobody gets two copies of a workunit.
        one_result_per_host_per_wu: no host does.
        ignore_upload_certificates: anybody may upload.
        send_result_abort: hosts are told to drop what nobody needs.
        delete_delay_s: how long files stay after assimilation.
        daemons: in order.
    """

    long_name: str = ""
    host: str = ""
    master_url: str = ""
    db_host: str = ""
    db_name: str = ""
    db_user: str = ""
    db_passwd: str = field(default="", repr=False)
    download_dir: str = ""
    download_url: str = ""
    upload_dir: str = ""
    upload_url: str = ""
    key_dir: str = ""
    fanout: int = _FANOUT
    cache_md5_info: bool = False
    one_result_per_user_per_wu: bool = False
    one_result_per_host_per_wu: bool = False
    ignore_upload_certificates: bool = False
    send_result_abort: bool = False
    delete_delay_s: int = 0
    daemons: tuple[ConfiguredDaemon, ...] = ()


@dataclass(frozen=True, slots=True)
class StockProject:
    """A project's directory and what its configuration says."""

    root: Path
    config: ProjectConfig

    @property
    def download(self) -> Path:
        """Return the directory of files for hosts."""
        return Path(self.config.download_dir or self.root / "download")

    @property
    def upload(self) -> Path:
        """Return the directory of files from hosts."""
        return Path(self.config.upload_dir or self.root / "upload")

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
    def stop_file(self) -> Path:
        """Return the file by which ``bin/stop`` ends the daemons."""
        return self.root / "stop_daemons"

    def tool(self, name: str) -> Path:
        """Return one of BOINC's programs."""
        return self.root / "bin" / name

    @property
    def database_url(self) -> str:
        """Return the SQLAlchemy URL of the project's database, password included."""
        config = self.config
        host = parse_host(config.db_host, socket.gethostname())
        place = find_socket(os.environ, os.path.exists) if host.is_local else ""
        url = URL.create(
            "mariadb+pymysql",
            username=config.db_user or None,
            password=config.db_passwd or None,
            host=host.name,
            port=None if host.is_local else host.port or None,
            database=config.db_name,
            query={"unix_socket": place} if place else {},
        )
        return url.render_as_string(hide_password=False)


def parse_config(data: bytes) -> ProjectConfig:
    """Return the settings in a ``config.xml``.

    Raises:
        TrustError: ``STO-B001`` when it is not one.
    """
    try:
        root = parse_xml(data, _BOUNDS)
        return _settings(_config_of(root), _daemons(root))
    except TrustError as error:
        raise TrustError("STO-B001", f"config.xml: {error.message}") from error


def _config_of(root: Element) -> Element:
    config = root.find("config")
    if root.tag != "boinc" or config is None:
        raise TrustError("STO-X030", "there is no <boinc><config>")
    if not 0 <= config.integer("uldl_dir_fanout") <= _LARGEST_FANOUT:
        raise TrustError("STO-X030", "uldl_dir_fanout makes no sense")
    return config


def _settings(config: Element, daemons: tuple[ConfiguredDaemon, ...]) -> ProjectConfig:
    def text(tag: str) -> str:
        return config.string(tag, longest=_LONGEST_PATH)

    return ProjectConfig(
        long_name=text("long_name"),
        host=text("host"),
        master_url=text("master_url"),
        db_host=text("db_host"),
        db_name=text("db_name"),
        db_user=text("db_user"),
        db_passwd=text("db_passwd"),
        download_dir=text("download_dir"),
        download_url=text("download_url").rstrip("/"),
        upload_dir=text("upload_dir"),
        upload_url=text("upload_url"),
        key_dir=text("key_dir"),
        fanout=config.integer("uldl_dir_fanout"),
        cache_md5_info=config.flag("cache_md5_info"),
        one_result_per_user_per_wu=config.flag("one_result_per_user_per_wu"),
        one_result_per_host_per_wu=config.flag("one_result_per_host_per_wu"),
        ignore_upload_certificates=config.flag("ignore_upload_certificates"),
        send_result_abort=config.flag("send_result_abort"),
        delete_delay_s=int(config.number("delete_delay_hours") * _HOUR_S),
        daemons=daemons,
    )


def _daemons(root: Element) -> tuple[ConfiguredDaemon, ...]:
    listed = root.find("daemons")
    if listed is None:
        return ()
    return tuple(
        ConfiguredDaemon(
            command=one.string("cmd", longest=_LONGEST_PATH),
            disabled=one.flag("disabled"),
            output=one.string("output"),
            pid_file=one.string("pid_file"),
        )
        for one in listed.every("daemon")
    )


def read_project(root: Path) -> StockProject:
    """Return the project in a directory.

    Raises:
        UsageError: ``STO-B002`` when there is none that can be read.
        TrustError: ``STO-B001`` when its ``config.xml`` is not one.
    """
    try:
        with (root / "config.xml").open("rb") as stream:
            data = stream.read(CONFIG_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "STO-B002",
            f"no BOINC project can be read there ({error.strerror})",
            hint="give the directory that make_project has made, with its config.xml",
        ) from error
    return StockProject(root.resolve(), parse_config(data))


_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}")
_OUTPUT: Final = re.compile(
    r"(?P<result>[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}_\d{1,9})_r\d{1,20}_0"
)
_LONGEST_NAME: Final = 4096


@dataclass(frozen=True, slots=True)
class OutputName:
    """The file that a host uploads for a result.

    Attributes:
        name: of the file; its random part keeps hosts from uploading others' results.
        result: BOINC's name of the result.
    """

    name: str
    result: str


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
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Of our environment; the rest may hold passwords, and is none of BOINC's business."""


class Tools:
    """The programs in a project's ``bin``."""

    def __init__(self, project: StockProject, time_s: float = _TIME_S) -> None:
        self._project = project
        self._time_s = time_s

    def create_work(self, arguments: Sequence[str], lines: Sequence[str]) -> None:
        """Make workunits, one for each line; raises ``STO-B005``, perhaps half-way."""
        self._run("create_work", arguments, "".join(f"{line}\n" for line in lines))

    def cancel(self, first: int, last: int) -> None:
        """Cancel all workunits of BOINC's numbers [first, last]; raises ``STO-B005``."""
        self._run("cancel_jobs", [str(first), str(last)])

    def _run(self, tool: str, arguments: Sequence[str], text: str = "") -> None:
        try:
            done = subprocess.run(
                [str(self._project.tool(tool)), *arguments],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                cwd=self._project.root,
                env=tool_environment(self._project.root),
                timeout=self._time_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InternalError(
                "STO-B005", f"{tool} could not be run ({type(error).__name__})"
            ) from error
        if done.returncode:
            said = " | ".join(done.stderr.split("\n")).strip(" |")[-_KEPT_CHARS:]
            raise InternalError("STO-B005", f"{tool} exited {done.returncode}: {said}")


def tool_environment(root: Path) -> dict[str, str]:
    """Return what one of BOINC's programs is started with."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "BOINC_PROJECT_DIR": str(root)}
