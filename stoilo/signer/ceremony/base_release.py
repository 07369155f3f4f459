"""The published release that a ceremony builds on, verified from its first root on.

A volunteer follows the timestamp. A ceremony must also read a release whose timestamp is
not signed yet, has expired, or was forged with a stolen online key: that is what it
repairs. So of all that travels (`read_release`) it takes every root and the newest file of
each other role, and verifies in full what people signed; of snapshot and timestamp only
the age is ever asked.
Trust: the files are hostile; the *first* root is only as good as its fingerprint, which
`review` prints and ``--root FILE`` compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuf.api.metadata import Root, Signed, TargetFile, Targets

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.trust import ReleaseFiles
from stoilo.signer.ceremony.metadata import (
    RoleFile,
    open_role,
    open_root,
    open_targets,
    parse_role_name,
    signers_of,
    targets_of,
)
from stoilo.signer.published.directory import read_release
from stoilo.signer.roles import OFFLINE, expiries


@dataclass(frozen=True, slots=True)
class BaseRelease:
    """A release whose offline roles hold."""

    files: ReleaseFiles  # metadata and small targets, by name
    roots: tuple[RoleFile, ...]  # every root, the first one first
    targets: RoleFile  # the newest targets
    # the newest metadata of each role that targets delegates
    delegated: tuple[RoleFile, ...]
    # newest snapshot and timestamp, as far as there are any
    online: tuple[RoleFile, ...]

    @property
    def root(self) -> Root:
        """The newest root."""
        return open_root(self.roots[-1]).signed

    @property
    def digest(self) -> Digest:
        """What names this release: its newest root, targets and delegated roles."""
        files = (self.roots[-1], self.targets, *self.delegated)
        lines = (f"{file.name} {file.signed_digest}\n" for file in files)
        return content_digest("".join(lines).encode())

    def role(self, name: str) -> RoleFile | None:
        """Return the newest metadata of an offline role, None where it has none."""
        files = (self.roots[-1], self.targets, *self.delegated)
        return next((file for file in files if file.role == name), None)

    def signed(self) -> Iterator[tuple[str, Signed]]:
        """Yield every role with its newest signed part, for `expiries`."""
        yield "root", self.root
        for file in (self.targets, *self.delegated):
            yield file.role, open_targets(file).signed
        for file in self.online:
            yield file.role, open_role(file).signed

    def names(self) -> Iterator[str]:
        """Yield the name of every target."""
        for file in (self.targets, *self.delegated):
            yield from targets_of(file)

    def info(self, name: str) -> TargetFile | None:
        """Return what the release says of target `name`."""
        prefix = name.partition("/")[0]
        file = self.role(prefix if self.role(prefix) is not None else "targets")
        return None if file is None else targets_of(file).get(name)

    def target(self, name: str) -> bytes | None:
        """Return a small target's bytes, None when the release does not name it.

        Raises ``STO-K052`` when it is named, and missing or damaged.
        """
        info = self.info(name)
        if info is None:
            return None
        data = self.files.get(f"targets/{stored_name(name, info.hashes['sha256'])}")
        if data is None or content_digest(data) != info.hashes["sha256"]:
            raise TrustError("STO-K052", f"target {name} is missing or damaged")
        return data


def find_release(directory: Path) -> Path:
    """Return the release directory in `directory`: itself, or a server's ``DIR/keys``.

    Raises ``STO-K052`` when neither holds release metadata.
    """
    for place in (directory, directory / "keys"):
        if (place / "metadata").is_dir():
            return place
    raise UsageError(
        "STO-K052",
        f"there is no release in {directory.name}",
        hint="give a release directory, or the data directory of `stoilo up`; what a "
        "ceremony's folder proposes shows `stoilo release review`",
    )


def roles_ending(current: BaseRelease, now: int) -> tuple[str, ...]:
    """Return the offline roles whose metadata ends soon, or has ended."""
    return tuple(
        one.role
        for one in expiries(current.signed(), now)
        if one.state != "ok" and one.role in OFFLINE
    )


def expired_roles(current: BaseRelease, at: int) -> Iterator[TrustError]:
    """Yield why the release may be an old copy, shown so that a version is signed twice."""
    found = {one.role: one for one in expiries(current.signed(), at)}
    for role in (*OFFLINE, "timestamp"):
        known = found.get(role)
        if known is None or known.state == "expired":
            what = "is not there" if known is None else "has expired"
            yield TrustError(
                "STO-K052",
                f"{role} of the release below {what}",
                hint="start the server, which signs its timestamp, and copy again; if "
                "it has really run out, add --renew-expired",
            )


def open_published(directory: Path) -> BaseRelease:
    """Return the release in `directory`, its offline roles verified.

    Raises as `read_release` and `open_base`; ``STO-K052`` where no metadata lies.
    """
    if not (directory / "metadata").is_dir():
        raise TrustError("STO-K052", "the release has no metadata")
    return open_base(read_release(directory))


def open_base(files: ReleaseFiles) -> BaseRelease:
    """Verify a release's offline roles from its first root on.

    Raises ``STO-K050`` for what cannot be read, ``STO-K052`` for what is missing or not
    signed by enough of its keys.
    """
    files = ReleaseFiles(tuple(sorted(files.files)))
    found = list(_role_files(files))
    roots = _root_chain([file for file in found if file.role == "root"])
    root = open_root(roots[-1]).signed
    targets = _newest(found, "targets")
    signed = open_targets(targets).signed
    _check_signed(targets, root)
    delegated = []
    delegations = signed.delegations
    for name in (delegations.roles or {}) if delegations else {}:
        file = _newest(found, name)
        _check_signed(file, signed)
        delegated.append(file)
    online = tuple(_online(found, files, root))
    return BaseRelease(files, roots, targets, tuple(delegated), online)


def stored_name(target: str, digest: str) -> str:
    """Return a target's consistent-snapshot name below ``targets/``."""
    folder, slash, base = target.rpartition("/")
    return f"{folder}{slash}{digest}.{base}"


def _role_files(files: ReleaseFiles) -> Iterator[RoleFile]:
    for name, data in files.files:
        folder, _, base = name.partition("/")
        parsed = parse_role_name(base) if folder == "metadata" else None
        if parsed is not None:
            yield RoleFile(parsed[1], parsed[0], data)


def _root_chain(found: list[RoleFile]) -> tuple[RoleFile, ...]:
    """Return the roots from version 1 on, each signed by its predecessor and itself."""
    roots = sorted(found, key=lambda file: file.version)
    # Who holds an old root walks the chain: a gap would leave him behind for ever.
    if [file.version for file in roots] != list(range(1, len(roots) + 1)) or not roots:
        raise TrustError(
            "STO-K052",
            "the release does not hold every root from the first one on",
            hint="roots are never deleted: restore them from a copy",
        )
    for previous, file in zip([None, *roots], roots, strict=False):
        # By its own keys as well: a root that nobody could follow is refused.
        owners = [file] if previous is None else [previous, file]
        _check_signed(file, *(open_root(owner).signed for owner in owners))
    return tuple(roots)


def _check_signed(file: RoleFile, *owners: Root | Targets) -> None:
    try:
        signers_of(file, *owners)
    except TrustError as error:
        raise TrustError(
            "STO-K052", f"{file.name} of the release is not signed by enough keys"
        ) from error


def _newest(found: list[RoleFile], role: str) -> RoleFile:
    files = [file for file in found if file.role == role]
    if not files:
        raise TrustError("STO-K052", f"the release lacks its role {role}")
    return max(files, key=lambda file: file.version)


def _online(
    found: list[RoleFile], files: ReleaseFiles, root: Root
) -> Iterator[RoleFile]:
    """Yield newest snapshot and timestamp, those that the root's online keys signed."""
    snapshots = [file for file in found if file.role == "snapshot"]
    if snapshots:
        newest = max(snapshots, key=lambda file: file.version)
        # A forged one is left out, not refused: the ceremony is what repairs
        # it.
        if _is_signed(root, newest):
            yield newest
    data = files.get("metadata/timestamp.json")
    if data is not None and _is_signed(root, RoleFile("timestamp", 0, data)):
        yield RoleFile("timestamp", 0, data)


def _is_signed(root: Root, file: RoleFile) -> bool:
    try:
        _check_signed(file, root)
    except TrustError:
        return False
    return True
