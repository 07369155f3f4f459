"""Private keys at rest: PKCS#8 files of mode 0600 in directories of mode 0700.

Trust: the directory belongs to this process's own user; a file that others may read or
write is refused rather than repaired, because it may have been read already.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stoilo.core.errors import TrustError
from stoilo.core.files import write_durably
from stoilo.core.signatures import PrivateKey, load_private_key

MAX_PRIVATE_BYTES = 64 * 1024
_ANYTHING = 0o077
_WRITABLE = 0o022
"""What others must not be able to do, as bits of the mode."""


def make_private_directory(path: Path) -> Path:
    """Create `path` as 0700 or check that it is; raises ``STO-K003``."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(path.stat(), path)
    return path


def ensure_key(path: Path) -> PrivateKey:
    """Return the key in `path`, making a new one when the file does not exist."""
    if not path.exists():
        write_private_file(path, PrivateKey.generate().pem())
    return read_private_key(path)


def read_private_key(path: Path) -> PrivateKey:
    """Return the key in `path`; raises ``STO-K001``, ``STO-K003``, ``STO-K029``."""
    return load_private_key(read_private_file(path))


def read_private_file(path: Path) -> bytes:
    """Return a private file's bytes; raises ``STO-K003`` or ``STO-K029``."""
    return _read(path, _ANYTHING)


def read_trusted_file(path: Path) -> bytes:
    """Return what others may read but not change, such as the root; see above."""
    return _read(path, _WRITABLE)


def _read(path: Path, forbidden: int) -> bytes:
    try:
        # A link would have the mode of what it points to checked, not its own.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise TrustError("STO-K029", f"{path.name} cannot be read") from error
    with os.fdopen(descriptor, "rb") as file:
        # Of the open file: a name could be given to another one meanwhile.
        _check_private(os.fstat(descriptor), path, forbidden)
        return file.read(MAX_PRIVATE_BYTES)


def write_private_file(path: Path, data: bytes) -> None:
    """Write what only this user may read, durably and atomically."""
    write_durably(path, data, mode=0o600)


def _check_private(
    status: os.stat_result, path: Path, forbidden: int = _ANYTHING
) -> None:
    """Refuse what belongs to, or is open to, anybody else."""
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & forbidden:
        raise TrustError(
            "STO-K003",
            f"{path.name} belongs to or is open to other users",
            hint="correct owner and mode; if others could read it, replace the key",
        )
