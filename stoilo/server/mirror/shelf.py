"""The folder of a mirror: files named by their SHA-256, and the index of them.

Any web server can serve it. A file is there only whole and checked: parts have another
name, and the index follows the files (an entry after its file came, gone before it goes).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError, TrustError
from stoilo.server.mirror.listing import INDEX, render_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from stoilo.server.mirror.listing import Listed

__all__ = ["Shelf", "disk"]

_NAME: Final = re.compile(r"[0-9a-f]{64}")
CHUNK: Final = 1024 * 1024


class Shelf:
    """The files under one folder, which belongs to one process.

    Raises:
        InternalError: ``STO-B055`` from any method when the disk refuses.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with disk():
            folder.mkdir(parents=True, exist_ok=True)

    def held(self) -> dict[str, int]:
        """Return sizes of the whole files, bytes by digest."""
        with disk():
            names = [one for one in self._folder.iterdir() if _NAME.fullmatch(one.name)]
            return {one.name: one.stat().st_size for one in names}

    def part_of(self, digest: str) -> Path:
        """Return where a file that is on its way lies."""
        return self._folder / f".{digest}.part"

    def publish(self, file: Listed) -> None:
        """Check a file that has arrived and give it its name.

        Raises:
            TrustError: ``STO-B054``; the part is gone.
        """
        part = self.part_of(file.digest)
        with disk():
            if _measure(part) != (file.size, file.digest):
                part.unlink(missing_ok=True)
                raise TrustError("STO-B054", f"other bytes came for {file.digest}")
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            part.chmod(0o644)
            part.replace(self._folder / file.digest)
        self.write_index()

    def evict(self, digests: Iterable[str]) -> None:
        """Delete files, after nobody is told of them any more."""
        gone = set(digests)
        if not gone:
            return
        self._write(render_index(self.held().keys() - gone))
        with disk():
            for digest in gone:
                (self._folder / digest).unlink(missing_ok=True)

    def drop_parts(self, wanted: Iterable[str]) -> None:
        """Delete parts of files that are not on their way any more."""
        keep = {self.part_of(digest).name for digest in wanted}
        with disk():
            for one in self._folder.glob(".*.part"):
                if one.name not in keep:
                    one.unlink(missing_ok=True)

    def write_index(self) -> None:
        """Tell what is held."""
        self._write(render_index(self.held()))

    def _write(self, index: bytes) -> None:
        """Replace the index."""
        part = self._folder / f".{INDEX}.{secrets.token_hex(4)}.part"
        with disk():
            part.write_bytes(index)
            part.chmod(0o644)
            part.replace(self._folder / INDEX)


@contextlib.contextmanager
def disk() -> Iterator[None]:
    """Turn what the disk refuses into our error."""
    try:
        yield
    except OSError as error:
        raise InternalError(
            "STO-B055", f"the mirror's folder cannot be used (errno {error.errno})"
        ) from error


def _measure(path: Path) -> tuple[int, str]:
    """Return size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()
