"""What is in force, and the log of every change of it: keys, policy, levels, flavors.

The database keeps what has been logged as being in force (`schema.standing`). Whenever
the release is read anew it is compared with what the release and this installation say
now; births, deaths and successions are noted for the log in the same transaction that
changes the memory of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import delete, insert, select, update
from tuf.api.metadata import Metadata, Root, Targets

from stoilo.audit.format.facts import (
    FlavorRecord,
    KeyRecord,
    LevelRecord,
    PolicyRecord,
    Record,
    ReleaseRecord,
)
from stoilo.audit.format.records import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    render_release_proof,
)
from stoilo.core.digests import content_digest
from stoilo.core.files import read_bounded, write_durably
from stoilo.server.db import schema
from stoilo.server.log.outbox import (
    NO_ORIGIN,
    Event,
    EventKind,
    make_mark,
    note_events,
    read_draft,
)
from stoilo.signer.ceremony.key_holders import role_keys
from stoilo.signer.ceremony.transcript import MAX_TRANSCRIPT_BYTES, TRANSCRIPT_FILE
from stoilo.signer.published.evidence import metadata_rows, part_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from stoilo.core.levels import Level
    from stoilo.executor.verifier.targets import TrustedRelease
    from stoilo.executor.verifier.trust import ReleaseFiles
    from stoilo.flavors.manifest import FlavorManifest
    from stoilo.server.db.store import Store
    from stoilo.server.log.ports import Log


PUBLISH_TIMEOUT_S: Final = 2.0


def is_logged_release(trust: TrustedRelease) -> bool:
    """Whether the release has a record of its own: signed by people, or with parts."""
    return not trust.development or bool(trust.parts)


def release_record(
    trust: TrustedRelease, files: ReleaseFiles, now: int, transcript: str = ""
) -> ReleaseRecord:
    """Return the record of a verified release. Pure.

    Args:
        trust: what it says.
        files: its metadata and small targets, verified.
        now: Unix seconds.
        transcript: SHA-256 of the ceremony's transcript, empty for none.
    """
    return ReleaseRecord(
        origin=NO_ORIGIN,
        time=now,
        root=trust.root_version,
        targets=trust.targets_version,
        metadata=metadata_rows(files),
        parts=part_rows(trust),
        transcript=transcript,
    )


def read_transcript(directory: Path) -> str:
    """Return the SHA-256 of the transcript beside a release, empty for none."""
    try:
        return content_digest(
            read_bounded(directory / TRANSCRIPT_FILE, MAX_TRANSCRIPT_BYTES)
        )
    except OSError:  # also one that is too large: no ceremony wrote it
        return ""


class ReleaseProof:
    """Writes the newest release's record and log proof beside it.

    Args:
        directory: the release's, or the server's own where that is another user's.
        store: knows which leaf tells of the newest release.
        log: gives the proof.
    """

    def __init__(self, directory: Path, store: Store, log: Log) -> None:
        self._directory = directory
        self._store = store
        self._log = log
        self._written = b""

    def upkeep(self) -> bool:
        """Write both files if a newer release is in the log; returns whether it did.

        Raises a StoiloError while the log is not published yet, or the disk refuses.
        """
        row = self._newest()
        if row is None or row[0] == self._written:
            return False
        record, leaf, index = row
        self._log.wait_published(index, timeout=PUBLISH_TIMEOUT_S)
        proof = render_release_proof(self._log.proof(index), leaf)
        write_durably(self._directory / RELEASE_RECORD_FILE, record, mode=0o600)
        write_durably(self._directory / RELEASE_PROOF_FILE, proof, mode=0o600)
        self._written = record
        return True

    def _newest(self) -> tuple[bytes, bytes, int] | None:
        """Return record, leaf and place of the newest release in the log."""
        table = schema.event
        query = (
            select(table.c.record, table.c.leaf, table.c.log_index)
            .where(table.c.key.between("release:", "release:~"))
            .where(table.c.log_index.is_not(None))
            .order_by(table.c.id.desc())
            .limit(1)
        )
        with self._store.read() as connection:
            row = connection.execute(query).first()
        return row and (bytes(row.record), bytes(row.leaf), int(row.log_index))


Standing = dict[str, Record]
"""Subject (``key:gate:0123…``, ``policy``, ``level:pure``) → the record of its birth."""


def facts_in_force(
    release: TrustedRelease,
    files: ReleaseFiles,
    now: int,
    *,
    policy_digest: str,
    levels: Iterable[Level] = (),
    flavors: Iterable[FlavorManifest] = (),
    transcript: str = "",
) -> Standing:
    """Return everything that is in force at `now` (s), by subject.

    Flavors are those of the release where it publishes any, else those installed.
    """
    found: Standing = {}
    for key in _keys(release, files, now):
        found.setdefault(f"key:{key.role}:{key.key}", key)
    found["policy"] = PolicyRecord(
        origin=NO_ORIGIN, time=now, change="in_force", digest=policy_digest
    )
    named = [(level.name, level.digest) for level in levels]
    for name, digest in [*named, ("language", release.installed_language)]:
        found[f"level:{name}"] = LevelRecord(
            origin=NO_ORIGIN, time=now, change="in_force", name=name, digest=digest
        )
    for name, digest, archives in _flavors(release, flavors):
        found[f"flavor:{digest}"] = FlavorRecord(
            origin=NO_ORIGIN,
            time=now,
            change="released",
            name=name,
            flavor=digest,
            archives=archives,
        )
    if is_logged_release(release):
        found["release"] = release_record(release, files, now, transcript)
    return found


def _flavors(
    release: TrustedRelease, installed: Iterable[FlavorManifest]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield name, id and archives' digests of the flavors that tasks may name."""
    published: dict[tuple[str, str], list[str]] = {}
    for part in release.parts:
        if part.flavor:
            archives = published.setdefault((part.part, part.flavor), [])
            archives.append(part.archive.sha256)
    for (name, digest), archives in published.items():
        if digest not in release.withdrawn_flavors | release.denied:
            yield name, digest, tuple(archives)
    if not published:
        for flavor in installed:
            if flavor.digest not in release.withdrawn_flavors | release.denied:
                yield flavor.name, flavor.digest, ()


def _keys(
    release: TrustedRelease, files: ReleaseFiles, now: int
) -> Iterator[KeyRecord]:
    """Yield the keys of all roles, of the gate's epochs, the log and the reviewers."""
    root = f"metadata/{release.root_version}.root.json"
    targets = f"metadata/{release.targets_version}.targets.json"
    for name in (root, targets):
        yield from _role_keys(files, name, now)
    for epoch in release.epochs:
        if epoch.not_after <= now or _is_revoked(release, epoch.number):
            continue
        for key in epoch.keys:
            file = _find_file(files, "targets/gate/", f"{epoch.number}.json", key.raw)
            yield _born(
                "gate",
                key.raw,
                now,
                file=file,
                name=f"gate/{epoch.number}.json",
                window=(epoch.not_before, epoch.not_after),
            )
    policy = _find_file(files, "targets/log/", "policy.txt")
    for log in release.log_policy.logs:
        yield _born("log", log.public, now, file=policy, name="log/policy.txt")
    for witness in release.log_policy.witnesses:
        public = witness.key.public
        yield _born("witness", public, now, file=policy, name="log/policy.txt")
    for reviewer in release.reviewers:
        public, name = reviewer.key.raw, "reviewers/keys.json"
        file = _find_file(files, "targets/reviewers/", "keys.json", public)
        yield _born("reviewer", public, now, file=file, name=name)


def _born(
    role: str,
    public: bytes,
    now: int,
    *,
    file: str,
    name: str,
    window: tuple[int, int] = (0, 0),
) -> KeyRecord:
    return KeyRecord(
        origin=NO_ORIGIN,
        time=now,
        event="born",
        role=role,
        key=content_digest(public),
        file=file,
        name=name,
        not_before=window[0],
        not_after=window[1],
    )


def _role_keys(files: ReleaseFiles, name: str, now: int) -> Iterator[KeyRecord]:
    """Yield the keys that a root or targets file (verified) gives to roles."""
    data = files.get(name)
    if data is None:
        return
    owner: Root | Targets = Metadata[Any].from_bytes(data).signed
    delegations = owner.delegations if isinstance(owner, Targets) else None
    named = (delegations.roles or {}) if delegations else {}
    file, short = content_digest(data), name.rpartition("/")[2]
    for role in owner.roles if isinstance(owner, Root) else named:
        for key in role_keys(owner, role):
            public = bytes.fromhex(key.keyval["public"])
            yield _born(role, public, now, file=file, name=short)


def _find_file(files: ReleaseFiles, folder: str, name: str, public: bytes = b"") -> str:
    """Return the digest of a target called `name` that holds a key, empty for none."""
    # Targets lie under the digest of their contents, and old ones may lie there still.
    found = [
        content_digest(data)
        for path, data in files.files
        if path.startswith(folder)
        and path.endswith((f".{name}", f"/{name}"))
        and public.hex().encode() in data
    ]
    return found[-1] if found else ""


def revoked_keys(release: TrustedRelease) -> frozenset[str]:
    """Return the digests of gate keys that the release withdraws before their end."""
    return frozenset(
        content_digest(key.raw)
        for epoch in release.epochs
        for key in epoch.keys
        if _is_revoked(release, epoch.number)
    )


def _is_revoked(release: TrustedRelease, number: int) -> bool:
    return number in release.revoked_epochs or number < release.min_epoch


def find_changes(
    before: Mapping[str, Record],
    after: Standing,
    now: int,
    revoked: frozenset[str] = frozenset(),
) -> list[Event]:
    """Return the events that lead from one state to the other. Pure."""
    records = [
        _begin(record, before.get(subject), now)
        for subject, record in after.items()
        if _identity(record) != _identity(before.get(subject))
    ]
    records += [
        _end(record, now, revoked)
        for subject, record in before.items()
        if subject not in after and not isinstance(record, ReleaseRecord)
    ]
    return [
        Event(f"{one.kind}:{make_mark()}", EventKind.RECORD, now, one)
        for one in records
    ]


def _identity(record: Record | None) -> str:
    match record:
        case KeyRecord():
            return record.key
        case PolicyRecord() | LevelRecord():
            return record.digest
        case FlavorRecord():
            return " ".join((record.flavor, *record.archives))
        case ReleaseRecord():
            named = (*record.metadata, *record.parts)
            return " ".join([record.transcript, *(one.digest for one in named)])
        case _:
            return ""


def _begin(record: Record, earlier: Record | None, now: int) -> Record:
    if isinstance(record, PolicyRecord | LevelRecord):
        previous = _identity(earlier)
        return msgspec.structs.replace(record, time=now, previous=previous)
    return msgspec.structs.replace(record, time=now)


def _end(record: Record, now: int, revoked: frozenset[str]) -> Record:
    match record:
        case KeyRecord():
            reason = "ended" if 0 < record.not_after <= now else "removed"
            if record.key in revoked:
                reason = "revoked"
            return msgspec.structs.replace(
                record, time=now, event="died", reason=reason
            )
        case FlavorRecord():
            return msgspec.structs.replace(record, time=now, change="withdrawn")
        case _:
            return msgspec.structs.replace(record, time=now, change="retired")


def note_changes(
    store: Store, after: Standing, now: int, revoked: frozenset[str] = frozenset()
) -> int:
    """Note every change since the last call, durably; returns how many.

    A restart notes nothing that has been noted before. `revoked` are the digests of
    keys that died before their time.
    """
    table = schema.standing
    with store.write() as connection:
        before = {
            row.subject: read_draft(bytes(row.record), NO_ORIGIN)
            for row in connection.execute(select(table))
        }
        # One transaction: a crash in between would log a change twice, or never.
        events = find_changes(before, after, now, revoked)
        note_events(connection, events)
        for subject in before.keys() - after.keys():
            connection.execute(delete(table).where(table.c.subject == subject))
        for subject, record in after.items():
            data = msgspec.json.encode(record)
            if subject not in before:
                connection.execute(insert(table).values(subject=subject, record=data))
            elif _identity(record) != _identity(before[subject]):
                query = update(table).where(table.c.subject == subject)
                connection.execute(query.values(record=data))
    return len(events)
