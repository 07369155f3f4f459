"""Looks for a private code-sign key on a project's server, and says where it could not.

"None was found" is only worth something when everything was read: what may not be listed
or opened is named too. Files, folders and depth are bounded, for whoever owns a project
chooses what lies in it; no link to a folder is followed, those among the keys are named.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import TrustError
from stoilo.signer.boinc_keys import parse_boinc_private

if TYPE_CHECKING:
    from collections.abc import Collection


MAX_KEY_BYTES: Final = 16 * 1024
# That one search reads, folders among them.
MOST_FILES: Final = 100_000

# Folders below one another.
DEEPEST: Final = 100

_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class KeySearch:
    """What a search has found; names are from the project, absolute elsewhere."""

    found: tuple[str, ...] = ()  # files with a private code-sign key
    # where keys are kept, and what there could not be read
    closed: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()  # the same for the rest of the project


class _Search:
    """One search; each file is read once."""

    def __init__(self, root: Path, public: list[str]) -> None:
        self._root = root
        self._public = public
        self._left = MOST_FILES
        self._seen: set[str] = set()
        self.found: set[str] = set()

    def look(self, top: Path, skipped: Collection[Path], *, links: bool) -> set[str]:
        """Read everything below `top`, and follow no link to a folder.

        Returns:
            What could not be read; with `links`, such links too, where nobody looks.
        """
        denied: set[Path] = set()

        def note(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                denied.add(Path(str(error.filename)))

        for folder, folders, files in os.walk(top, onerror=note):
            place = Path(folder)
            self._left -= 1 + len(files)
            paths = [place / name for name in folders if place / name not in skipped]
            if links:
                denied |= {one for one in paths if self._leads_away(one, skipped)}
            folders[:] = [one.name for one in paths]
            denied |= {place / name for name in files if not self._read(place / name)}
            if len(place.parts) - len(top.parts) >= DEEPEST and folders:
                denied.add(place)
                folders.clear()
            if self._left <= 0:
                denied.add(place)
                break
        return {below(self._root, one) for one in denied}

    def _leads_away(self, path: Path, skipped: Collection[Path]) -> bool:
        if not path.is_symlink():
            return False
        real = Path(os.path.realpath(path))
        looked = real.is_relative_to(os.path.realpath(self._root))
        return not looked or any(
            real.is_relative_to(os.path.realpath(one)) for one in skipped
        )

    def _read(self, path: Path) -> bool:
        """Note a file that holds a key; returns whether it could be read."""
        real = os.path.realpath(path)
        if real in self._seen:
            return True
        self._seen.add(real)
        content = read_small(path)
        if "code_sign_private" in path.name or self._signs(path.name, content or ""):
            self.found.add(below(self._root, path))
        return content is not None

    def _signs(self, name: str, content: str) -> bool:
        if not _is_private(content):
            return False
        # BOINC's upload key, which a server needs, unless it is the code-sign key
        modulus = slice(1, 5)  # lines with 128 bytes
        same = content.split()[modulus] == self._public[modulus]
        return not name.startswith("upload_private") or same


def find_private_keys(
    root: Path, key_dir: Path, skipped: Collection[Path] = ()
) -> KeySearch:
    """Return the files that hold a private code-sign key, by name or by content.

    BOINC's upload key, which a server needs, is left out by its name, unless it is the
    code-sign key under that name.
    """
    public = (read_small(key_dir / "code_sign_public") or "").split()
    search = _Search(root, public)
    closed: set[str] = set()
    for place in {key_dir: None, root / "keys": None}:
        closed |= search.look(place, skipped, links=True)
    unseen = search.look(root, skipped, links=False) - closed - search.found
    some = [tuple(sorted(names)[:_NAMED]) for names in (closed, unseen)]
    return KeySearch(tuple(sorted(search.found)), *some)


def below(root: Path, path: Path) -> str:
    """Return a name from the project's directory, absolute where it is elsewhere."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - a link keeps its own name
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def read_small(path: Path) -> str | None:
    """Return the beginning of a file as text, empty for what is no file; None: denied."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""  # gone, or a link to nothing
    except OSError:
        return None if _is_file(path) else ""
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        try:
            return stream.read(MAX_KEY_BYTES).decode("ascii", "replace")
        except OSError:
            return None


def _is_file(path: Path) -> bool:
    """Whether a name is a file's, as far as can be seen: sockets cannot be opened."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _is_private(text: str) -> bool:
    if "PRIVATE KEY-----" in text:
        return True
    try:
        parse_boinc_private(text.partition("\n.")[0] + "\n.\n")
    except TrustError:
        return False
    return True
