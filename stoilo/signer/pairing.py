"""Do launcher, verifier and release belong together? Pure.

The launcher starts one verifier, whose digest it holds; the verifier knows one root, built
into it. Each can be signed and rebuilt equal and still be the wrong one for this release,
and then every volunteer stops. So the three are compared, before signing and after
publishing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import IO, Final

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError
from stoilo.core.frozen_tree import XzReader, read_archive
from stoilo.executor.verifier.installation import Built
from stoilo.executor.verifier.targets import PartFile
from stoilo.flavors.launcher_build import describe_launcher

BUILT_PATH: Final = "_internal/stoilo/executor/verifier/built.json"
"""Where a verifier's tree holds what it was built with."""

MAX_BUILT_BYTES: Final = 1024**2
XZ_MAGIC: Final = b"\xfd7zXZ\x00"


def read_tree(file: IO[bytes], tree: str) -> bytes:
    """Read an archive, compressed or not, to its end: it must hold exactly `tree`.

    Returns:
        What a verifier in it was built with; empty where the tree holds no such file.

    Raises:
        TrustError: the codes of `stoilo.core.frozen_tree`.
    """
    compressed = file.read(len(XZ_MAGIC)) == XZ_MAGIC
    file.seek(0)
    built = b""
    for member in read_archive(XzReader(file) if compressed else file, Digest(tree)):
        wanted = member.file.path == BUILT_PATH and member.file.size <= MAX_BUILT_BYTES
        for chunk in member.chunks:  # read even where nobody wants it: hashes end there
            built += chunk if wanted else b""
    return built


def check_launcher(launcher: PartFile, program: bytes, verifier: PartFile) -> None:
    """Check that a launcher (its bytes) starts `verifier` of the same platform.

    Raises ``STO-F001`` when it is no launcher, ``STO-F034`` when it starts another
    verifier or is another than its record says.
    """
    held = describe_launcher(program)
    own = (held.platform, held.version, held.serial)
    if own != (launcher.platform, launcher.version, launcher.serial):
        raise TrustError(
            "STO-F034",
            f"the launcher for {launcher.platform} is not that of its record",
        )
    ours = (verifier.archive.sha256, verifier.archive.size, verifier.tree)
    if (held.archive, held.archive_size, held.tree) != ours:
        raise TrustError(
            "STO-F034",
            f"the launcher for {launcher.platform} starts another verifier than the "
            "release's",
            hint="publish the verifier and the launcher of one `stoilo release build`",
        )


def check_built(
    built: Built,
    verifier: PartFile,
    *,
    roots: Collection[bytes],
    origin: str,
    rehearsal: bool,
    development: bool,
) -> None:
    """Check that a verifier was built for this release.

    Args:
        built: what its tree holds.
        verifier: its record.
        roots: every root of the release.
        origin: the project's name.
        rehearsal: whether the root is one of a staging project.
        development: whether it is one of development.

    Raises:
        TrustError: STO-F034.
    """
    own = (built.platform, built.version, built.serial)
    if own != (verifier.platform, verifier.version, verifier.serial):
        raise _wrong(verifier, "is not that of its record")
    if built.root_bytes() not in roots or built.origin != origin:
        raise _wrong(verifier, "was built for another root or project")
    # A verifier of a rehearsal takes development marks too: it is built that way.
    lenient = development or rehearsal
    if built.development != lenient or built.rehearsal != rehearsal:
        raise _wrong(verifier, "was built for another kind of root")


def _wrong(verifier: PartFile, what: str) -> TrustError:
    return TrustError(
        "STO-F034",
        f"the verifier for {verifier.platform} {what}",
        hint="build it again: stoilo release build --root FILE",
    )
