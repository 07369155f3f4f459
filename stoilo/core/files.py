"""Files that last: written whole or not at all, flushed to the disk, read up to a bound.

The one place that knows how a file survives a power cut (ext4, xfs): flush the file's
bytes, give it its name by a rename within one directory, flush the directory.
Errors are the system's `OSError`; each caller says in its own words what failed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

# Ends the name of a file that is being written; what a crash left is written over
DRAFT_SUFFIX = ".new"

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def draft_of(path: Path) -> Path:
    """Return where the next content of `path` is written before it gets its name."""
    return path.with_name(f".{path.name}{DRAFT_SUFFIX}")


def write_durably(
    path: Path,  # replaced if it is there
    data: bytes | Iterable[bytes],  # all of it, or its pieces in order
    *,
    # permission bits, exactly these whatever the umask; None: those that the umask
    # leaves, for media that know none
    mode: int | None = 0o644,
    # where to write first, in the same directory; `draft_of` unless given
    draft: Path | None = None,
) -> None:
    """Give `path` the content `data`: after a crash it holds the old bytes or the new.

    One writer a path at a time; who may have two writers holds a lock.

    Raises:
        OSError: nothing has changed under `path`.
    """
    draft = draft or draft_of(path)
    draft.unlink(missing_ok=True)  # a link planted there is not written through
    try:
        with os.fdopen(
            os.open(draft, _NEW, 0o666 if mode is None else mode), "wb"
        ) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)  # without it the rename itself may be lost


def sync_directory(directory: Path) -> None:
    """Make names made, renamed and removed in `directory` last; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bounded(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file that has at most `most` of them.

    Raises:
        OSError: it cannot be read, is a link or no plain file (EINVAL), or is too
            large (EFBIG).
    """
    # A pipe put in the file's place would make a blocking open wait for ever.
    with os.fdopen(os.open(path, _OLD | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path.name)
        data = file.read(most + 1)  # not the size it claims: it may grow meanwhile
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", path.name)
    return data
