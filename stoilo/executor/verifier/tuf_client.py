"""python-tuf's own client on files in memory, with the caller's clock and our errors.

The workflow (root chain, thresholds, rollback, expiry, hashes) is python-tuf's. Ours is what it
leaves open: one encoding of metadata, every key counted once, no two roles for one name, and
which attack a refusal is, since its dozen kinds of error mean other things at other steps.

Importing it whole would load an HTTP client with TLS, and signers that talk to clouds, hardware
and gpg: a third of a verifier's start, and code that no volunteer has reviewed. While it is
imported here, those modules are stood in for by empty ones; the keys that they would read are
unknown afterwards, so metadata that names one is refused.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Final

from stoilo.core.errors import TrustError
from stoilo.core.signatures import parse_strict_json
from stoilo.core.types import BOUNDS
from stoilo.executor.verifier.installation import disk_trouble

LEFT_OUT: Final = {
    "tuf.ngclient.urllib3_fetcher": ("Urllib3Fetcher",),
    "securesystemslib.signer._aws_signer": ("AWSSigner",),
    "securesystemslib.signer._azure_signer": ("AzureSigner",),
    "securesystemslib.signer._gcp_signer": ("GCPSigner",),
    "securesystemslib.signer._gpg_signer": ("GPGKey", "GPGSigner"),
    "securesystemslib.signer._hsm_signer": ("HSMSigner",),
    "securesystemslib.signer._sigstore_signer": ("SigstoreKey", "SigstoreSigner"),
    "securesystemslib.signer._tkey_signer": ("TKeySigner",),
    "securesystemslib.signer._vault_signer": ("VaultSigner",),
}
"""Modules that are not loaded → the classes that others take from them."""


class _Absent:
    """Stands for a class of a module that is left out."""

    SCHEME = ""


@contextmanager
def _lean() -> Iterator[None]:
    """Let imports find empty modules in place of `LEFT_OUT`, unless they are loaded."""
    added = []
    for name, classes in LEFT_OUT.items():
        if name in sys.modules or name.rpartition(".")[0] in sys.modules:
            continue
        stand_in = ModuleType(name)
        for one in classes:
            setattr(stand_in, one, type(one, (_Absent,), {}))
        sys.modules[name] = stand_in
        added.append(name)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


with _lean():
    from securesystemslib.signer import (
        KEY_FOR_TYPE_AND_SCHEME,
        SIGNER_FOR_URI_SCHEME,
    )
    from tuf.api import exceptions
    from tuf.api.metadata import Delegations, Metadata, Role, Root, TargetFile, Targets
    from tuf.api.serialization import DeserializationError
    from tuf.ngclient.config import UpdaterConfig
    from tuf.ngclient.fetcher import FetcherInterface
    from tuf.ngclient.updater import Updater

_tables: tuple[dict[Any, type], ...] = (KEY_FOR_TYPE_AND_SCHEME, SIGNER_FOR_URI_SCHEME)
for _table in _tables:
    for _key in [key for key, kind in _table.items() if issubclass(kind, _Absent)]:
        del _table[_key]


OLDER: Final = "STO-K010"
"""The release is older than one seen here: honest for a task of yesterday, whose own
metadata is then judged by the newer release that is known; else an attack."""

_VANISHED: Final = (
    "missing info",
    "not contain information",
    "not part of snapshot",
)


def _code_of(error: Exception, phase: str, *, replaced: bool) -> str:
    """Return the code of the attack that an error of python-tuf's client looks like.

    Args:
        error: the client's.
        phase: the role that was being loaded, ``file`` for a target.
        replaced: whether a root is known here that is newer than any of the release's.
    """
    text, code = str(error), "STO-K013"
    match error:
        case exceptions.ExpiredMetadataError():
            code = "STO-K011"
        case (
            exceptions.BadVersionNumberError() | exceptions.UnsignedMetadataError()
        ) if phase == "root":
            code = "STO-K031"
        case exceptions.BadVersionNumberError():
            # python-tuf has one class for a version that went back and for one that is
            # not the one named above, and tells them apart by its words alone.
            back = phase == "snapshot" and not text.startswith("Expected snapshot")
            code = OLDER if back or phase == "timestamp" else "STO-K019"
        case exceptions.UnsignedMetadataError():
            # Signed by a root that has been replaced here: honest for a task of
            # yesterday.
            code = OLDER if replaced else "STO-K012"
        case exceptions.LengthOrHashMismatchError():
            code = "STO-K019"
        case exceptions.DownloadError() if not isinstance(
            error, exceptions.DownloadLengthMismatchError
        ):
            code = "STO-K013"
        case _ if any(words in text for words in _VANISHED):
            code = OLDER
    return code


def check_form(data: bytes, name: str) -> None:
    """Refuse metadata that is not in its one encoding.

    `data`: a metadata file, hostile.

    Raises:
        TrustError: STO-K013, keys in another order, white space, a name twice, floats,
            a field left to its default …
    """
    try:
        parse_strict_json(data, max_bytes=BOUNDS.metadata_bytes, what=name)
        read = Metadata[Root].from_bytes(data).to_bytes()
    except DeserializationError:
        return  # the client names what is wrong with it
    except TrustError as error:
        raise TrustError("STO-K013", f"{name}: {error.message}") from error
    if read != data:
        raise TrustError("STO-K013", f"{name} is not written in its one form")


def check_keys(delegator: Root | Delegations) -> None:
    """Refuse a role that one key could sign for twice, under two key ids.

    Raises:
        TrustError: STO-K012.
    """
    roles: Iterable[tuple[str, Role]] = (delegator.roles or {}).items()
    for name, role in roles:
        known = [delegator.keys[one] for one in role.keyids if one in delegator.keys]
        values = [str(key.keyval.get("public")) for key in known]
        # Key ids are chosen by who writes the metadata, so one key may stand under two.
        if len(set(values)) != len(values):
            raise TrustError("STO-K012", f"role {name} names one key twice")
        if len(values) < role.threshold:
            raise TrustError("STO-K012", f"role {name} has fewer keys than it needs")


MAX_ROOT_ROTATIONS: Final = 64
"""Most versions of the root that a host follows at once."""

_LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999, Unix seconds: a clock that is further ahead means the same."""

_BASE: Final = "release:///"
_NO_FOLDER: Final = Path(os.devnull)
"""Nothing can lie in it, so there is nothing to read."""
_CONFIG: Final = UpdaterConfig(
    max_root_rotations=MAX_ROOT_ROTATIONS,
    max_delegations=8,
    root_max_length=BOUNDS.metadata_bytes,
    timestamp_max_length=16 * 1024,
    snapshot_max_length=BOUNDS.metadata_bytes,
    targets_max_length=BOUNDS.metadata_bytes,
)


class _MemoryFetcher(FetcherInterface):
    """Serves a release's files to python-tuf's client."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def _fetch(self, url: str) -> Iterator[bytes]:
        """Yield a file's bytes; a missing one is the client's HTTP 404."""
        data = self._files.get(url.removeprefix(_BASE))
        if data is None:
            raise exceptions.DownloadHTTPError(f"no file {url}", 404)
        yield data

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return a file's bytes without going through a temporary file."""
        data = next(self._fetch(url))
        if len(data) > max_length:
            raise exceptions.DownloadLengthMismatchError(f"{url} is too large")
        if url.startswith(f"{_BASE}metadata/"):
            check_form(data, url.removeprefix(f"{_BASE}metadata/"))
        return data

    def has(self, name: str) -> bool:
        """Whether the release has a file `name`."""
        return name in self._files

    def highest_root(self) -> int:
        """Return the highest version of a root among the files, 0 without any."""
        names = (PurePosixPath(name).name.split(".") for name in self._files)
        numbers = (name[0] for name in names if name[1:] == ["root", "json"])
        return max((int(one) for one in numbers if one.isdecimal()), default=0)


class ReleaseUpdater(Updater):
    """python-tuf's client with the caller's clock, and targets kept in memory.

    Args:
        folder: the cache's directory; None keeps nothing.
        files: the release's by name, hostile.
        root: the trusted root metadata.
        at: the time to judge expiry by, Unix seconds.

    Raises:
        TrustError: STO-K013 when the root cannot be read.
    """

    def __init__(
        self, folder: Path | None, files: Mapping[str, bytes], root: bytes, at: int
    ) -> None:
        self._memory = _MemoryFetcher(files)
        self._keeps = folder is not None
        try:
            with disk_trouble("the release's cache cannot be used"):
                super().__init__(
                    str(folder or _NO_FOLDER),
                    f"{_BASE}metadata/",
                    fetcher=self._memory,
                    config=_CONFIG,
                    bootstrap=root,
                )
        except exceptions.UnsignedMetadataError as error:
            raise TrustError("STO-K031", f"the trusted root: {error}") from error
        except exceptions.RepositoryError as error:
            raise TrustError("STO-K013", "the trusted root cannot be read") from error
        # The client has no parameter for the time.
        self._trusted_set.reference_time = datetime.fromtimestamp(
            min(at, _LAST_SECOND), UTC
        )

    def read_all(self, infos: Mapping[str, TargetFile]) -> dict[str, bytes]:
        """Return the targets in `infos` by name, each as the metadata has it.

        Raises:
            TrustError: STO-K013 for a missing file, for one that is longer than
                it may be, STO-K019 for another than the metadata names.
        """
        found = {}
        for name, info in infos.items():
            with self._phase("file", name):
                found[name] = self._read(info)
        return found

    def infos(self) -> dict[str, TargetFile]:
        """Return what the targets role and those it delegates to name, by name.

        Raises:
            TrustError: STO-K013 where two roles speak for a name, or a role for names
                outside of its own folder; this module's codes.
        """
        targets = self._trusted_set.targets
        delegated = targets.delegations.roles if targets.delegations else {}
        found = dict(targets.targets)
        for name, role in (delegated or {}).items():
            own = self._load_targets(name, Targets.type)
            folder = f"{name}/"
            strange = [path for path in own.targets if not path.startswith(folder)]
            if role.paths != [f"{folder}*"] or strange or own.delegations is not None:
                raise TrustError("STO-K013", f"role {name} speaks beyond {folder}")
            if any(path.startswith(folder) for path in targets.targets):
                raise TrustError("STO-K013", f"targets and {name} both name {folder}")
            found |= own.targets
        return found

    def versions(self) -> tuple[int, int, int]:
        """Return the versions of root, targets and timestamp."""
        known = self._trusted_set
        return known.root.version, known.targets.version, known.timestamp.version

    def role_version(self, name: str) -> int:
        """Return the version of a delegated role; raises ``STO-K013`` without it."""
        role = self._trusted_set.get(name)
        if role is None:
            raise TrustError("STO-K013", f"the release has no role {name}")
        return int(role.version)

    def threshold(self, name: str) -> int:
        """Return how many keys must sign for a role, 0 for one that there is not."""
        rows = self._trusted_set.targets.delegations
        owned = (rows.roles or {}) if rows else {}
        role = self._trusted_set.root.roles.get(name) or owned.get(name)
        return role.threshold if role else 0

    def expiry(self) -> int:
        """Return when the first role that was read expires, Unix seconds."""
        return int(min(role.expires for role in self._trusted_set).timestamp())

    def marks(self) -> frozenset[str]:
        """Return the names of the newest root's own fields."""
        return frozenset(self._trusted_set.root.unrecognized_fields)

    def _read(self, info: TargetFile) -> bytes:
        path = PurePosixPath("targets", info.path)
        stored = path.with_name(f"{next(iter(info.hashes.values()))}.{path.name}")
        data = self._memory.download_bytes(f"{_BASE}{stored}", info.length)
        info.verify_length_and_hashes(data)
        return data

    def _persist_metadata(self, rolename: str, data: bytes) -> None:
        if self._keeps:
            super()._persist_metadata(rolename, data)

    def _persist_root(self, version: int, data: bytes) -> None:
        if self._keeps:
            super()._persist_root(version, data)

    def _update_root_symlink(self) -> None:
        if self._keeps:
            super()._update_root_symlink()

    def _load_root(self) -> None:
        """Follow the chain of roots to its end; a gap or a chain without end refuses."""
        with self._phase("root"):
            super()._load_root()
        version, highest = self._trusted_set.root.version, self._memory.highest_root()
        if self._memory.has(f"metadata/{version + 1}.root.json"):
            raise TrustError(
                "STO-K031",
                f"more than {MAX_ROOT_ROTATIONS} versions of the root to follow",
            )
        if highest > version:
            raise TrustError("STO-K031", f"the root's version {version + 1} is missing")
        check_keys(self._trusted_set.root)

    def _load_timestamp(self) -> None:
        with self._phase("timestamp"):
            super()._load_timestamp()

    def _load_snapshot(self) -> None:
        with self._phase("snapshot"):
            super()._load_snapshot()

    def _load_targets(self, role: str, parent_role: str) -> Targets:
        with self._phase("targets", role):
            targets = super()._load_targets(role, parent_role)
        if targets.delegations is not None:
            check_keys(targets.delegations)
        return targets

    @contextmanager
    def _phase(self, phase: str, name: str = "") -> Iterator[None]:
        try:
            with disk_trouble("the release's cache cannot be used"):
                yield
        except (exceptions.RepositoryError, exceptions.DownloadError) as error:
            replaced = 0 < self._memory.highest_root() < self._trusted_set.root.version
            raise TrustError(
                _code_of(error, phase, replaced=replaced), f"{name or phase}: {error}"
            ) from error


@contextmanager
def cache_directory(cache: Path | None) -> Iterator[Path | None]:
    """Yield the client's own directory, locked: several tasks start at once.

    Raises:
        InternalError: STO-X008 when it cannot be used.
    """
    if cache is None:
        yield None
        return
    with disk_trouble("the release's cache cannot be used"):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (cache / "lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache
