"""Does the steps of an installation; each leaves the project whole when the next fails."""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from sqlalchemy import bindparam, text

from stoilo.core.errors import InternalError
from stoilo.server.engines.stock.installation.app_versions import version_xml
from stoilo.server.engines.stock.installation.levels import mark_preferences
from stoilo.server.engines.stock.installation.owner import Owner, acting_as
from stoilo.server.engines.stock.installation.plan import (
    AddVersion,
    MarkPreferences,
    RetireVersions,
    RunTool,
    SetMode,
    WriteFile,
)
from stoilo.server.engines.stock.project.database import open_database
from stoilo.server.engines.stock.project.directory import tool_environment

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from stoilo.server.engines.programs import SignedFile
    from stoilo.server.engines.stock.installation.app_versions import VersionFolder
    from stoilo.server.engines.stock.installation.plan import Step


# Accounts whose preferences were saved before the page wrote ``<stoilo_work>``.
UNMARKED: Final = (
    "user WHERE instr(project_prefs, '</project_specific>') > 0"
    " AND instr(project_prefs, '<max_level>') > 0"
    " AND instr(project_prefs, '<stoilo_work>') = 0"
)

_RETIRE: Final = text(
    "UPDATE app_version SET deprecated = 1 WHERE id IN :rows"
).bindparams(bindparam("rows", expanding=True))
_SAVE: Final = text(
    "UPDATE user SET project_prefs = :saved WHERE id = :id AND project_prefs = :was"
)


def retire_versions(database_url: str, rows: tuple[int, ...]) -> None:
    """Mark app versions as deprecated, as BOINC's own pages do; raises ``STO-B025``."""
    what = "app versions could not be retired"
    with open_database(database_url, what) as connection:
        connection.execute(_RETIRE, {"rows": rows})


def mark_accounts(database_url: str) -> None:
    """Mark the preferences of the accounts `UNMARKED`; raises ``STO-B025``.

    One that its owner saves meanwhile stays as he saved it.
    """
    what = "accounts' preferences could not be marked"
    with open_database(database_url, what) as connection:
        _mark(connection)


def _mark(connection: Connection) -> None:
    query = f"SELECT id, project_prefs FROM {UNMARKED}"  # noqa: S608 - our own words
    for row, was in connection.execute(text(query)).all():
        raw = was if isinstance(was, bytes) else str(was).encode()
        saved = mark_preferences(raw.decode("utf-8", "surrogateescape"))
        data = saved.encode("utf-8", "surrogateescape")
        made = data if isinstance(was, bytes) else data.decode()
        connection.execute(_SAVE, {"saved": made, "id": row, "was": was})


TOOL_S: Final = 600.0
_SHOWN: Final = 500
# What BOINC's PHP programs say as they end with 0 and have not done it.
_FAILED: Final = re.compile(
    r"^\s*(?:PHP )?(?:Fatal |Parse )?[Ee]rror\b|^\S+ not found\b|is listed in version\.xml but",
    re.MULTILINE,
)

_PROGRAM_MODE: Final = 0o755
_FILE_MODE: Final = 0o644


class Installer:
    """Does steps in one project's directory.

    Installed by root, everything is done with the rights of the project's owner, by
    BOINC's own programs too: whatever lies in a project is his to choose, links included.
    In a project that is root's own no link is followed where a mode is set.

    Args:
        root: the project.
        database_url: of its database (SQLAlchemy form).
    """

    def __init__(self, root: Path, database_url: str = "") -> None:
        self._root = root
        self._database_url = database_url
        self._owner = Owner.of(root)

    def do(self, step: Step) -> None:
        """Do one step.

        Raises:
            InternalError: ``STO-B026`` a file cannot be written; ``STO-B027`` a program
                of BOINC's fails; ``STO-B025`` the database does not answer.
        """
        try:
            match step:
                case WriteFile():
                    with acting_as(self._owner):
                        self._write(step)
                case SetMode():
                    with acting_as(self._owner):
                        self._set_mode(step)
                case AddVersion():
                    self._add_version(step.folder)
                case RunTool():
                    self._run(step.words)
                case RetireVersions():
                    retire_versions(self._database_url, step.rows)
                case MarkPreferences():
                    mark_accounts(self._database_url)
        except OSError as error:
            raise InternalError(
                "STO-B026",
                f"{step}: {error.strerror or 'no'}"[:_SHOWN],
                hint=_hint(error),
            ) from error

    def _write(self, step: WriteFile) -> None:
        path = self._root / step.path
        self._make_folder(path.parent)
        if step.keep_former and path.exists():
            self._keep(path)
        handle, name = tempfile.mkstemp(prefix=".stoilo-", dir=path.parent)
        made = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(step.content)
                stream.flush()
                os.fsync(stream.fileno())
                os.fchmod(stream.fileno(), step.mode)
            made.replace(path)
        except BaseException:
            made.unlink(missing_ok=True)
            raise

    def _keep(self, path: Path) -> None:
        """Copy a file beside itself, with the time in the copy's name."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        kept = path.with_name(f"{path.name}.{stamp}")
        number = 0
        while kept.exists():
            number += 1
            kept = path.with_name(f"{path.name}.{stamp}-{number}")
        shutil.copy2(path, kept)
        _set_mode(kept, 0o600)

    def _set_mode(self, step: SetMode) -> None:
        path = self._root / step.path
        if not path.exists():
            self._make_folder(path)
        _set_mode(path, step.mode)
        if not path.is_dir():
            return
        for folder in path.iterdir():
            if (
                folder.is_dir()
                and not folder.is_symlink()
                and not _is_anothers_for_all(folder)
            ):
                _set_mode(folder, step.mode)

    def _add_version(self, folder: VersionFolder) -> None:
        """Make an app version's directory under another name, then put it in place.

        The release is read with the rights of whoever installs.
        """
        place = self._root / folder.path
        made = place.with_name(f".{place.name}.new")
        with ExitStack() as stack:
            sources = [stack.enter_context(_open(file)) for _, file in folder.files]
            stack.enter_context(acting_as(self._owner))
            self._make_folder(place.parent)
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            self._fill(made, folder, sources)
            shutil.rmtree(place, ignore_errors=True)
            made.replace(place)

    def _fill(self, made: Path, folder: VersionFolder, sources: list[BinaryIO]) -> None:
        for number, (name, file) in enumerate(folder.files):
            path = made / name
            with path.open("wb") as stream:
                shutil.copyfileobj(sources[number], stream)
                os.fchmod(stream.fileno(), _FILE_MODE if number else _PROGRAM_MODE)
            _write_text(path.with_name(f"{name}.sig"), file.signature)
        _write_text(made / "version.xml", version_xml(folder.program))
        _set_mode(made, _PROGRAM_MODE)

    def _run(self, words: tuple[str, ...]) -> None:
        """Run a program of BOINC's in the project's directory."""
        owner = self._owner if self._owner.is_another else None
        try:
            done = subprocess.run(
                [str(self._root / words[0]), *words[1:]],
                cwd=self._root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=TOOL_S,
                user=owner.uid if owner else None,
                group=owner.gid if owner else None,
                extra_groups=owner.groups if owner else None,
                umask=0o002,
            )
        except subprocess.TimeoutExpired as error:
            raise InternalError("STO-B027", f"{words[0]} does not end") from error
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        if done.returncode != 0 or _FAILED.search(said):
            raise InternalError("STO-B027", f"{words[0]}: {said[-_SHOWN:]}")

    def _environment(self) -> dict[str, str]:
        """Return what one of BOINC's programs is started with: no home of another's."""
        environment = tool_environment(self._root)
        if self._owner.is_another:
            environment.pop("HOME", None)
        return environment

    def _make_folder(self, folder: Path) -> None:
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir()
            _set_mode(one, _PROGRAM_MODE)


def _open(file: SignedFile) -> BinaryIO:
    if isinstance(file.source, Path):
        return file.source.open("rb")
    return io.BytesIO(file.source)


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        os.fchmod(stream.fileno(), _FILE_MODE)


def _set_mode(path: Path, mode: int) -> None:
    """Give a file or directory its permissions; root follows no link to it.

    Raises:
        OSError: it is another's, or the system takes a bit away without a word.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags | (os.O_NOFOLLOW if os.geteuid() == 0 else 0))
    try:
        os.fchmod(handle, mode)
        found = stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
    if found != mode:
        raise PermissionError(0, f"it stays {found:o}; its group must be the owner's")


def _is_anothers_for_all(folder: Path) -> bool:
    """Say whether a folder is another user's and does its work as it is.

    The upload handler makes folders of the web server's, open to the group: nobody but
    the web server may change their bits, and nobody needs to.
    """
    found = folder.stat(follow_symlinks=False)
    shared = found.st_mode & stat.S_IRWXG == stat.S_IRWXG
    return found.st_uid != os.geteuid() and shared


def _hint(error: OSError) -> str:
    if not isinstance(error, PermissionError):
        return ""
    return (
        "what lies in the project must be its owner's: look with ls -l, and as root"
        " chown what the web server or another user has made there"
    )
