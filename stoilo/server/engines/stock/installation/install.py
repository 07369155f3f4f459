"""One installation from end to end: read the release, read the project, plan, do.

Each step leaves the project whole when the next fails, and config.xml comes last; done
again, an installation goes on where it stopped.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.files import write_durably
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.trust import load_trust
from stoilo.server.engines.stock.app_versions import (
    check_signatures,
    version_xml,
)
from stoilo.server.engines.stock.installation.facts import ask_database, read_facts
from stoilo.server.engines.stock.installation.owner import (
    Owner,
    acting_as,
    find_interpreter,
)
from stoilo.server.engines.stock.installation.plan import (
    AddVersion,
    RunTool,
    SetMode,
    WriteFile,
    make_plan,
)
from stoilo.server.engines.stock.project.database import open_database
from stoilo.server.engines.stock.project.directory import read_project, tool_environment
from stoilo.server.engines.stock.script_server import ENTRY_POINTS, entry_point_text
from stoilo.server.release.parts import ReleasedPrograms, read_programs
from stoilo.signer.release_pack import read_release

if TYPE_CHECKING:
    from stoilo.server.engines.programs import SignedFile
    from stoilo.server.engines.stock.app_versions import VersionFolder
    from stoilo.server.engines.stock.installation.plan import Plan, Step
    from stoilo.server.engines.stock.project.directory import StockProject
    from stoilo.server.release.parts import ReleasedPrograms


TOOL_S: Final = 600.0
_SHOWN: Final = 500
# What BOINC's PHP programs say as they end with 0 and have not done it.
_FAILED: Final = re.compile(
    r"^\s*(?:PHP )?(?:Fatal |Parse )?[Ee]rror\b|^\S+ not found\b|is listed in version\.xml but",
    re.MULTILINE,
)
_PROGRAM_MODE: Final = 0o755
_FILE_MODE: Final = 0o644
_CHUNK: Final = 1024 * 1024


def install_project(
    root: Path,
    offer: ReleasedPrograms,
    *,
    quick: bool = False,
    dry_run: bool = False,
    url: str = "",
) -> Plan:
    """Make the project in `root` ready for the programs of `offer`; return what was done.

    Args:
        root: the project.
        offer: of `read_offer`.
        quick: hosts shall ask every few seconds; see `correct_settings`.
        dry_run: only say what would be done.
        url: of its database (SQLAlchemy form), if another than config.xml names.

    Raises:
        UsageError, InternalError: ``STO-B001``, ``STO-B021`` to ``STO-B026``.
    """
    project = _read(root)
    wanted = entry_points(Owner.of(project.root))
    facts = read_facts(project, [file.path for file in wanted])
    what = "the project's database does not answer as BOINC's does"
    with open_database(url or project.database_url, what) as connection:
        facts = ask_database(facts, connection)
    plan = make_plan(facts, offer.programs, offer.key, wanted, quick=quick)
    if not dry_run:
        installer = Installer(project.root)
        for step in plan.steps:
            installer.do(step)
    return plan


def _read(root: Path) -> StockProject:
    """Return the project as its owner reads it; raises as `read_project`."""
    if not root.is_dir():
        return read_project(root)  # says what is wrong with it
    with acting_as(Owner.of(root)):
        return read_project(root)


def entry_points(owner: Owner) -> tuple[WriteFile, ...]:
    """Return the scripts that BOINC's daemons run; raises ``STO-B021``."""
    content = entry_point_text(find_interpreter(owner)).encode()
    why = "BOINC's daemons ask the engine by it"
    return tuple(WriteFile(f"bin/{name}", content, 0o755, why) for name in ENTRY_POINTS)


def read_offer(directory: Path) -> ReleasedPrograms:
    """Return what stock clients get of the release in `directory`, checked as by them.

    Raises:
        UsageError: ``STO-B028`` when there is nothing for them.
        TrustError: the release's codes; ``STO-E002`` a file that is not of its digest;
            ``STO-K076``, ``STO-E001`` signatures and platforms.
    """
    root = directory / "root.json"
    if not root.is_file():
        raise UsageError(
            "STO-B028",
            "there is no published release",
            hint="name the folder with root.json, metadata and targets: DATA/keys",
        )
    trust = load_trust(
        read_release(directory),
        root.read_bytes(),
        int(time.time()),
        installed=installed_release(),
    )
    found = read_programs(directory, trust)
    if not found.programs:
        raise UsageError(
            "STO-B028",
            "the release has no programs that are signed for BOINC clients",
            hint="let the ceremony sign launcher and verifier with the role boinc",
        )
    check_signatures(found.programs, found.key)
    return found


class Installer:
    """Does steps in one project's directory.

    Installed by root, everything is done with the rights of the project's owner, by
    BOINC's own programs too: whatever lies in a project is his to choose, links included.
    In a project that is root's own no link is followed where a mode is set.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._owner = Owner.of(root)

    def do(self, step: Step) -> None:
        """Do one step.

        Raises:
            InternalError: ``STO-B026`` a file cannot be written, or a program of BOINC's fails.
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
            _keep_former(path)
        write_durably(path, step.content, mode=step.mode)

    def _set_mode(self, step: SetMode) -> None:
        path = self._root / step.path
        if not path.exists():
            self._make_folder(path)
        _set_mode(path, step.mode)
        if not path.is_dir():
            return
        for folder in path.iterdir():
            if folder.is_symlink() or not folder.is_dir():
                continue
            if not _is_anothers_for_all(folder):
                _set_mode(folder, step.mode)

    def _add_version(self, folder: VersionFolder) -> None:
        """Make an app version's directory under another name, then put it in place."""
        place = self._root / folder.path
        made = place.with_name(f".{place.name}.new")
        with ExitStack() as stack:
            # the release is read with the rights of whoever installs
            sources = [
                stack.enter_context(_open(file)) for _, file in folder.program.files
            ]
            stack.enter_context(acting_as(self._owner))
            self._make_folder(place.parent)
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            _fill(made, folder, sources)
            shutil.rmtree(place, ignore_errors=True)
            made.replace(place)

    def _run(self, words: tuple[str, ...]) -> None:
        """Run a program of BOINC's in the project's directory."""
        environment = tool_environment(self._root)
        if self._owner.is_another:
            environment.pop("HOME", None)  # root's own
        try:
            done = subprocess.run(
                [str(self._root / words[0]), *words[1:]],
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=TOOL_S,
                umask=0o002,
                **self._owner.process_rights(),
            )
        except subprocess.TimeoutExpired as error:
            raise InternalError("STO-B026", f"{words[0]} does not end") from error
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        if done.returncode != 0 or _FAILED.search(said):
            raise InternalError("STO-B026", f"{words[0]}: {said[-_SHOWN:]}")

    def _make_folder(self, folder: Path) -> None:
        """Make a directory and those above it, down from the project's."""
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir()
            _set_mode(one, _PROGRAM_MODE)


def _keep_former(path: Path) -> None:
    """Copy a file beside itself, with the time in the copy's name."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    kept = path.with_name(f"{path.name}.{stamp}")
    number = 0
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.{stamp}-{number}")
    shutil.copy2(path, kept)
    _set_mode(kept, 0o600)


def _fill(made: Path, folder: VersionFolder, sources: list[BinaryIO]) -> None:
    """Write a version's files, their signatures and its description."""
    modes = (_PROGRAM_MODE, _FILE_MODE)  # BOINC runs the first one
    for (name, file), source, mode in zip(
        folder.program.files, sources, modes, strict=True
    ):
        pieces = iter(partial(source.read, _CHUNK), b"")
        write_durably(made / name, pieces, mode=mode)
        write_durably(made / f"{name}.sig", file.signature.encode(), mode=_FILE_MODE)
    described = version_xml(folder.program).encode()
    write_durably(made / "version.xml", described, mode=_FILE_MODE)
    _set_mode(made, _PROGRAM_MODE)


def _open(file: SignedFile) -> BinaryIO:
    if isinstance(file.source, Path):
        return file.source.open("rb")
    return io.BytesIO(file.source)


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
    # The upload handler makes folders of the web server's, open to the group: nobody but
    # the web server may change their bits, and nobody needs to.
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
