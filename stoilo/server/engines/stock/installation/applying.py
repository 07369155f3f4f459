"""Does the steps of an installation; each leaves the project whole when the next fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError
from stoilo.server.engines.stock.installation.steps import (
    AddVersion,
    RunTool,
    SetMode,
    WriteFile,
)
from stoilo.server.engines.stock.installation.versions import version_xml

if TYPE_CHECKING:
    from stoilo.server.engines.interface import SignedFile
    from stoilo.server.engines.stock.installation.steps import Step
    from stoilo.server.engines.stock.installation.versions import VersionFolder

__all__ = ["Installer"]

TOOL_S: Final = 600.0
_SHOWN: Final = 500
_PROGRAM_MODE: Final = 0o755
_FILE_MODE: Final = 0o644


class Installer:
    """Does steps in one project's directory.

    What is written belongs to the project's owner and group, whoever installs; BOINC's
    own programs run as that owner when root installs.

    Args:
        root: the project.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._owner = root.stat()

    def do(self, step: Step) -> None:
        """Do one step.

        Raises:
            InternalError: ``STO-B026`` a file cannot be written; ``STO-B027`` a program
                of BOINC's fails.
        """
        try:
            match step:
                case WriteFile():
                    self._write(step)
                case SetMode():
                    self._set_mode(step)
                case AddVersion():
                    self._add_version(step.folder)
                case RunTool():
                    self._run(step.words)
        except OSError as error:
            raise InternalError(
                "STO-B026", f"{step}: {error.strerror or 'no'}"[:_SHOWN]
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
            self._give(made, step.mode)
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
        self._give(kept, 0o600)

    def _set_mode(self, step: SetMode) -> None:
        path = self._root / step.path
        if not path.exists():
            self._make_folder(path)
        self._give(path, step.mode)
        if path.is_dir():
            for folder in path.iterdir():
                if folder.is_dir() and not folder.is_symlink():
                    folder.chmod(step.mode)

    def _add_version(self, folder: VersionFolder) -> None:
        """Make an app version's directory under another name, then put it in place."""
        place = self._root / folder.path
        self._make_folder(place.parent)
        made = place.with_name(f".{place.name}.new")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        for number, (name, file) in enumerate(folder.files):
            mode = _FILE_MODE if number else _PROGRAM_MODE
            self._put(made / name, file, mode)
        (made / "version.xml").write_text(version_xml(folder.program))
        self._give(made / "version.xml", _FILE_MODE)
        self._give(made, _PROGRAM_MODE)
        shutil.rmtree(place, ignore_errors=True)
        made.replace(place)

    def _put(self, path: Path, file: SignedFile, mode: int) -> None:
        """Write one file of a version and its signature."""
        if isinstance(file.source, Path):
            shutil.copyfile(file.source, path)
        else:
            path.write_bytes(file.source)
        self._give(path, mode)
        signature = path.with_name(f"{path.name}.sig")
        signature.write_text(file.signature)
        self._give(signature, _FILE_MODE)

    def _run(self, words: tuple[str, ...]) -> None:
        """Run a program of BOINC's in the project's directory."""
        root = os.geteuid() == 0 and self._owner.st_uid != 0
        try:
            done = subprocess.run(
                [str(self._root / words[0]), *words[1:]],
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=TOOL_S,
                user=self._owner.st_uid if root else None,
                group=self._owner.st_gid if root else None,
                extra_groups=[] if root else None,
                umask=0o002,
            )
        except subprocess.TimeoutExpired as error:
            raise InternalError("STO-B027", f"{words[0]} does not end") from error
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        if done.returncode != 0 or "Error" in said:
            raise InternalError("STO-B027", f"{words[0]}: {said[-_SHOWN:]}")

    def _make_folder(self, folder: Path) -> None:
        """Make a directory and those above it, down from the project's."""
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir()
            self._give(one, _PROGRAM_MODE)

    def _give(self, path: Path, mode: int) -> None:
        if os.geteuid() == 0:
            os.chown(path, self._owner.st_uid, self._owner.st_gid)
        path.chmod(mode)
