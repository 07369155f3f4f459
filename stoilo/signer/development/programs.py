"""Programs of a development root: published and BOINC-signed on the machine that serves.

A released project's launchers, verifiers and flavors go through a ceremony. A development
root has its offline keys beside the online ones anyway, so here one call does it all, with
a BOINC code-sign key of its own:

    DIR/offline/boinc.key               private, made at the first call
    DIR/boinc/key.pub, launcher/*.sig …  as a ceremony publishes them

Trust: the build directory is the operator's own; its files must be what their records say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.targets import PartFile, ProjectFile, read_target
from stoilo.executor.verifier.trust import PROJECT_FILE
from stoilo.signer.boinc_keys import (
    BoincPrivateKey,
    generate_boinc_key,
    parse_boinc_private,
    render_boinc_private,
)
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.boinc_files import (
    is_boinc_file,
    sign_boinc_files,
)
from stoilo.signer.ceremony.built_parts import read_parts_from
from stoilo.signer.ceremony.checks import check_pairs
from stoilo.signer.ceremony.proposal import next_proposal
from stoilo.signer.development.root import (
    check_development,
    development_ceremony,
    publish_ceremony,
)
from stoilo.signer.key_files import (
    read_private_file,
    write_private_file,
)
from stoilo.signer.repository import publishing

KEY_FILE: Final = "boinc.key"


@dataclass(frozen=True, slots=True)
class PublishedPrograms:
    """Names of the files that a release hands out from now on, and those of BOINC's apps."""

    targets: tuple[str, ...]
    signed: tuple[str, ...]


def project_root(directory: Path) -> bytes:
    """Return the root that a verifier of this development root is built for.

    Raises ``STO-K091`` when the directory is a released project's; ``STO-K093`` when it
    has no root.
    """
    check_development(directory)
    try:
        return (directory / "root.json").read_bytes()
    except OSError as error:
        raise UsageError(
            "STO-K093",
            "there is no development root here yet",
            hint="start the server once: stoilo up --data DIR; or, for a stock project, "
            "add --new",
        ) from error


def project_origin(directory: Path) -> str:
    """Return the origin of this development root; raises as `project_root`."""
    data = _release(directory).target(PROJECT_FILE) or b""
    return read_target(data, ProjectFile, PROJECT_FILE).origin


def next_serial(directory: Path, platform: str) -> int:
    """Return a serial that no published launcher or verifier of `platform` has."""
    base = _release(directory)
    serials = [
        read_target(data, PartFile, name).serial
        for name in (f"launcher/{platform}.json", f"verifier/{platform}.json")
        if (data := base.target(name)) is not None
    ]
    return max(serials, default=0) + 1


def publish_programs(directory: Path, build: Path, now: int) -> PublishedPrograms:
    """Publish every part of `build` in the development root in `directory`.

    Raises as `project_root`; ``STO-K050`` when the build holds no part; ``STO-K050``
    when a file is not what its record says; ``STO-F034`` for a launcher without
    verifier; ``STO-F034`` for one built for another root.
    """
    project_root(directory)
    changes = read_parts_from(build)
    names = tuple(sorted(one.name for one in changes.put))
    signed = tuple(name for name in names if is_boinc_file(name))
    _refuse_half_pairs(signed)
    with publishing(directory):
        proposal = next_proposal(open_published(directory), changes, now)
        ceremony = development_ceremony(proposal, now)
        for problem in check_pairs(ceremony):
            raise problem
        if signed:
            ceremony = sign_boinc_files(ceremony, ensure_boinc_key(directory))
        publish_ceremony(directory, ceremony, now)
    return PublishedPrograms(names, signed)


def ensure_boinc_key(directory: Path) -> BoincPrivateKey:
    """Return the development root's BOINC code-sign key, made when there is none.

    Raises ``STO-K091`` when the directory is a released project's; ``STO-K003``,
    ``STO-K029``, ``STO-K076`` when the key's file cannot be used.
    """
    check_development(directory)
    path = directory / "offline" / KEY_FILE
    if not path.exists():
        write_private_file(path, render_boinc_private(generate_boinc_key()).encode())
    return parse_boinc_private(read_private_file(path).decode("ascii", "replace"))


def _release(directory: Path) -> BaseRelease:
    project_root(directory)
    return open_published(directory)


def _refuse_half_pairs(signed: tuple[str, ...]) -> None:
    """Refuse a launcher without the verifier that it starts, and the reverse."""
    pairs = {"launcher": set[str](), "verifier": set[str]()}
    for name in signed:
        part, _, file = name.partition("/")
        pairs[part].add(file.removesuffix(".tar"))
    # A launcher holds the digest of one verifier: alone it stops every host.
    if alone := pairs["launcher"] ^ pairs["verifier"]:
        raise TrustError(
            "STO-F034",
            f"launcher and verifier belong together: {', '.join(sorted(alone))}",
        )
