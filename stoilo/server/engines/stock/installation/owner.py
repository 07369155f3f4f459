"""Root's rights put aside: what is done to a project is done as the project's owner.

An administrator may install as root, but every name below a project is its owner's to
choose: a link there must not lead root anywhere. So files are opened, made and changed
with the owner's rights alone, and whatever he could not do himself fails. BOINC's daemons
run as the owner too, so he must be able to run the scripts' interpreter.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypedDict

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ProcessRights(TypedDict, total=False):
    """Arguments of `subprocess.run`."""

    user: int
    group: int
    extra_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a project belongs to."""

    uid: int  # of its directory
    gid: int  # of its directory
    groups: tuple[int, ...]  # that he is in, `gid` among them

    @classmethod
    def of(cls, root: Path) -> Self:
        """Return the owner of a project's directory; raises `OSError`."""
        found = root.stat()
        groups = {found.st_gid}
        with contextlib.suppress(KeyError):  # a number without a name has no others
            known = pwd.getpwuid(found.st_uid)
            groups |= {*os.getgrouplist(known.pw_name, known.pw_gid)}
        return cls(found.st_uid, found.st_gid, tuple(sorted(groups)))

    def process_rights(self) -> ProcessRights:
        """Return what starts a process with the owner's rights; nothing for who is not root."""
        if not self.is_another:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups}

    @property
    def is_another(self) -> bool:
        """Whether this process has rights to put aside: it is root's, the project is not."""
        return os.geteuid() == 0 and self.uid != 0


@contextlib.contextmanager
def acting_as(owner: Owner) -> Iterator[None]:
    """Have the owner's rights, and no others, until the end of the block.

    Only the effective ids change, so that the owner's own processes can do nothing to
    this one meanwhile. They change for the whole process: for a command line, not for a
    server. Whoever is not root keeps what he is.
    """
    if not owner.is_another:
        yield
        return
    groups, gid = os.getgroups(), os.getegid()
    os.setgroups(owner.groups)
    os.setegid(owner.gid)
    os.seteuid(owner.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


INTERPRETERS: Final = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    str(Path(sys.executable).resolve()),
)
TRIAL_S: Final = 60.0
_TRIAL: Final = "import os, socket, sys, time; sys.exit(sys.version_info < (3, 9))"


def find_interpreter(owner: Owner, candidates: Sequence[str] = INTERPRETERS) -> str:
    """Return the first of `candidates` that the project's owner can run.

    Raises:
        UsageError: ``STO-B021`` he can run none of them.
    """
    said = []
    for name in candidates:
        trouble = try_interpreter([name, "-IS"], owner)
        if not trouble:
            return name
        said.append(f"{name}: {trouble}")
    raise UsageError(
        "STO-B021",
        f"as user {owner.uid} no Python can be run: {'; '.join(said)}",
        hint="install the system's Python 3.9 or later, or let that user enter the folders"
        " above the one that runs stoilo",
    )


def try_interpreter(words: Sequence[str], owner: Owner) -> str:
    """Run an interpreter for a moment as the owner; returns why it fails, or nothing.

    Whoever is not root tries it as himself.
    """
    try:
        done = subprocess.run(
            [*words, "-c", _TRIAL],
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=TRIAL_S,
            **owner.process_rights(),
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or "it is no name of a file"
    status = done.returncode
    return f"it ends with {status} and is no Python 3.9 or later" if status else ""
