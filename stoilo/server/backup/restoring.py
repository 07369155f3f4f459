"""`stoilo restore`: a backup becomes a data directory, whole or not at all.

Order: everything is copied into a draft beside the target and checked there; then the
log; then, where tables go into a MariaDB, one transaction a branch; the last step is a
rename. What fails before leaves no data directory, and no tables in that MariaDB.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
import tempfile
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError

from stoilo.audit.format.merkle import Checkpoint, Frontier, leaf_hashes
from stoilo.audit.format.policy import open_checkpoint, parse_policy
from stoilo.audit.log.database import LogDatabase
from stoilo.audit.log.store import LogPaths
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.core.files import sync_directory
from stoilo.server.backup.manifest import copy_checked, read_manifest
from stoilo.server.backup.tables import (
    BRANCHES,
    FILES,
    copy_tables,
    drop_tables,
)
from stoilo.server.db.store import open_engine, storage_error
from stoilo.server.migrations import read_revision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.audit.format.policy import LogPolicy
    from stoilo.server.backup.manifest import Manifest
    from stoilo.server.migrations import Branch


_CHUNK: Final = 256
MAX_POLICY_BYTES: Final = 64 * 1024


def open_newest(data: Path, note: bytes) -> Checkpoint:
    """Return the checkpoint in an (untrusted) note, signed by the log below `data`.

    Raises:
        UsageError: ``STO-B066`` it is no checkpoint of this log.
    """
    try:
        return open_checkpoint(note, _policy(data)).checkpoint
    except StoiloError as error:
        raise UsageError(
            "STO-B066",
            f"the checkpoint given is none of this log: {error.message} [{error.code}]",
        ) from error


def check_not_older(
    data: Path,  # a data directory
    newest: Checkpoint,  # what is known
    held_by: str = "others",  # who knows it
) -> None:
    """Check that the log below `data`, which is whole, continues what is known of it.

    Raises:
        TrustError: ``STO-B067`` it is older, or another history.
    """
    with closing(LogDatabase(LogPaths.below(data).database, read_only=True)) as log:
        state = log.load()
        size = 0 if state is None else state.frontier.size
        if state is None or newest.size > size:
            raise TrustError(
                "STO-B067",
                f"{held_by} hold {newest.size} leaves of the log, this one has {size}: "
                "going on from it would fork the log",
                hint="take audit, audit-head and the signer's memory from where they "
                "survived (--log DIR), or a newer backup",
            )
        root = _root(log, newest.size)
    if (state.origin, root) != (newest.origin, newest.root):
        raise TrustError(
            "STO-B067",
            f"the log's first {newest.size} leaves are not those that {held_by} hold: "
            "going on from it would fork the log",
            hint="keep both as evidence; a log that forked begins anew under another key",
        )


def _root(log: LogDatabase, size: int) -> bytes:
    """Return the root over the first `size` leaves of the database."""
    frontier = Frontier()
    for start in range(0, size, _CHUNK):
        leaves = log.leaves(start, min(start + _CHUNK, size))
        frontier = frontier.extend(leaf_hashes(leaves))
    return frontier.root()


def _policy(data: Path) -> LogPolicy:
    path = LogPaths.below(data).log / "policy.txt"
    with path.open("rb") as file:
        return parse_policy(file.read(MAX_POLICY_BYTES))


LOGGER = logging.getLogger(__name__)

SETTINGS: Final = "stoilo.toml"
_DATABASE_LINE: Final = re.compile(
    r"^\s*(?:database|engine_database)\s*=.*\n?", re.MULTILINE
)
_OF_THE_LOG: Final = (
    "audit",
    "audit-head",
    "keys/state",
    "keys/metadata",
    "keys/targets",
    "revocations",
)


@dataclass(frozen=True, slots=True)
class Restore:
    """What is to be restored, and on what evidence."""

    backup: Path  # the directory of one
    data: Path  # the data directory to make
    # the newest checkpoint that others hold, a signed note; None for none
    newest: bytes | None = None
    # the operator says that nothing was published after the backup
    nothing_newer: bool = False
    # a data directory at rest whose log survived, to take the log from; None to take
    # the backup's
    log: Path | None = None
    database: str = ""  # URL of an empty MariaDB for all tables; empty: SQLite files


def restore_backup(wish: Restore) -> Manifest:
    """Make a data directory out of a backup.

    Raises:
        UsageError: ``STO-B063`` the directory exists, ``STO-B064`` no backup, ``STO-B066``
            no evidence, ``STO-B063`` the database is not empty.
        TrustError: ``STO-B065`` a file was changed, ``STO-B067`` the log would fork; the
            log's own codes.
        InternalError: ``STO-U006`` the disk refuses, ``STO-R030`` the database.
    """
    _check_wish(wish)
    data = wish.data.absolute()
    data.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{data.name}.", dir=data.parent))
    try:
        manifest = _copy(wish.backup, draft)
        if wish.log is not None:
            _take_log(wish.log, draft)
        _check_log(wish, draft, manifest)
        with _undone_on_failure() as made:
            _place_tables(wish, draft, manifest, made)
            _settle(draft)
            if data.exists():
                data.rmdir()  # it is empty
            draft.rename(data)
        sync_directory(data.parent)
    except OSError as error:
        raise InternalError(
            "STO-U006", f"the restore cannot be written: {error}"
        ) from error
    except SQLAlchemyError as error:
        raise storage_error(error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _check_wish(wish: Restore) -> None:
    if wish.data.exists() and (not wish.data.is_dir() or any(wish.data.iterdir())):
        raise UsageError(
            "STO-B063",
            f"{wish.data} exists and is not empty",
            hint="a restore never writes over a data directory; move it away and keep it",
        )
    if not wish.nothing_newer and wish.newest is None and wish.log is None:
        raise UsageError(
            "STO-B066",
            "nothing says that this backup holds the newest state of the log",
            hint="give the newest checkpoint that others hold (--newest FILE), the log "
            "where it survived (--log DIR), or --nothing-published-since",
        )


def _copy(place: Path, draft: Path) -> Manifest:
    """Copy every file that the manifest names, each checked."""
    manifest = read_manifest(place)
    for file in manifest.files:
        copy_checked(place / "files" / file.path, file, draft / file.path)
    return manifest


def _take_log(source: Path, draft: Path) -> None:
    """Put a surviving log, its head, its signer's memory and its release in place.

    Raises:
        UsageError: ``STO-U004`` there is none; ``STO-B066`` a server runs on it.
    """
    if not (source / "audit" / "log.sqlite").is_file():
        raise UsageError("STO-U004", f"{source.name} holds no log's databases")
    with _at_rest(source):
        for name in _OF_THE_LOG:
            if (source / name).is_dir():
                shutil.rmtree(draft / name, ignore_errors=True)
                shutil.copytree(source / name, draft / name)


@contextmanager
def _at_rest(data: Path) -> Iterator[None]:
    """Hold a data directory that no server uses."""
    with (data / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                "STO-B066", f"a server runs on {data.name}", hint="stop it first"
            ) from error
        yield


def _check_log(wish: Restore, draft: Path, manifest: Manifest) -> None:
    """Verify the log that is about to go on, and that it is behind nothing known.

    A log that survived elsewhere must also lead on from the backup's own: databases and
    log would be of two projects, or the log older than what its databases rely on.
    """
    verify_log(draft)
    if wish.log is not None:
        place = manifest.log
        known = Checkpoint(place.origin, place.size, bytes.fromhex(place.root))
        check_not_older(draft, known, "the backup and its databases")
    if wish.newest is not None:
        check_not_older(draft, open_newest(draft, wish.newest))


@contextmanager
def _undone_on_failure() -> Iterator[ExitStack]:
    """Yield a stack whose callbacks run only if what follows fails."""
    with ExitStack() as made:
        yield made
        made.pop_all()


def _place_tables(
    wish: Restore, draft: Path, manifest: Manifest, made: ExitStack
) -> None:
    """Put tables where the wish says; settings follow.

    `made` is given what removes the tables from the database again.
    """
    for name, branch in BRANCHES.items():
        file = draft / FILES[name]
        if not (wish.database and file.exists()):
            continue
        _check_empty(wish.database, branch)
        made.callback(_drop_tables, wish.database, branch)
        source = open_engine(f"sqlite:///{file}")
        try:
            with source.connect() as reading:
                copy_tables(reading, wish.database, branch)
        finally:
            source.dispose()
        file.unlink()
    if wish.database or manifest.mariadb:
        _write_settings(draft, wish.database)


def _check_empty(url: str, branch: Branch) -> None:
    """Raise ``STO-B063`` where the branch's tables are there already."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            present = read_revision(connection, branch)
    finally:
        engine.dispose()
    if present:
        raise UsageError(
            "STO-B063",
            f"the database holds a {branch.name}'s tables already",
            hint="make an empty one: CREATE DATABASE",
        )


def _drop_tables(url: str, branch: Branch) -> None:
    """Remove what this restore has put into a database; trouble is only told."""
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            drop_tables(connection, branch)
    except (SQLAlchemyError, InternalError) as error:
        LOGGER.warning("the %s's tables stay in the database: %s", branch.name, error)
    finally:
        engine.dispose()


def _write_settings(draft: Path, database: str) -> None:
    """Let the settings name where the tables are now."""
    path = draft / SETTINGS
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    text = _DATABASE_LINE.sub("", text)
    if database:
        text = f"database = {json.dumps(database)}\n{text}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def _settle(draft: Path) -> None:
    """Flush all names and close what is no one else's business."""
    for folder, folders, _ in os.walk(draft):
        for name in folders:
            (Path(folder) / name).chmod(0o700)
        sync_directory(Path(folder))
    draft.chmod(0o700)
