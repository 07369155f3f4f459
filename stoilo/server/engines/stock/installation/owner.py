"""Root's rights put aside: what is done to a project is done as the project's owner.

An administrator may install as root, but every name below a project is its owner's to
choose: a link there must not lead root anywhere. So files are opened, made and changed
with the owner's rights alone, and whatever he could not do himself fails.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Owner", "acting_as"]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a project belongs to.

    Attributes:
        uid: of its directory.
        gid: of its directory.
        groups: that he is in, `gid` among them.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    def of(cls, root: Path) -> Self:
        """Return the owner of a project's directory; raises `OSError`."""
        found = root.stat()
        groups = {found.st_gid}
        with contextlib.suppress(KeyError):  # a number without a name has no others
            known = pwd.getpwuid(found.st_uid)
            groups |= {*os.getgrouplist(known.pw_name, known.pw_gid)}
        return cls(found.st_uid, found.st_gid, tuple(sorted(groups)))

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
