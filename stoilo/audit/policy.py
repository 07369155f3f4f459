"""Which logs and witnesses a reader trusts (c2sp.org/tlog-policy), and the check by it.

A policy is configuration: it comes out of the verifier's release metadata or from the
auditor's hand, never from the log it judges. (A log may publish a copy as
``policy.txt``; trusting that copy says only that the log agrees with itself.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from stoilo.audit.checkpoint import Checkpoint, parse_checkpoint
from stoilo.audit.note import (
    KeyType,
    Note,
    VerifierKey,
    parse_note,
    parse_vkey,
    render_vkey,
    verify_signature,
)
from stoilo.core.errors import TrustError

__all__ = [
    "Group",
    "LogPolicy",
    "SignedCheckpoint",
    "Witness",
    "open_checkpoint",
    "parse_policy",
    "render_policy",
    "vkey_policy",
]

MAX_POLICY_BYTES = 64 * 1024
NO_QUORUM = "none"
_ALLOWED = re.compile(rb"[\t\n\x20-\x7e\x80-\xff]*")
_COUNT = re.compile(r"[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class Witness:
    """A cosigner under its name in the policy."""

    name: str
    key: VerifierKey


@dataclass(frozen=True, slots=True)
class Group:
    """A group that has witnessed when at least `threshold` of its members have."""

    name: str
    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """Trusted logs, witnesses and the quorum (``none`` or a witness or group name)."""

    logs: tuple[VerifierKey, ...]
    witnesses: tuple[Witness, ...] = ()
    groups: tuple[Group, ...] = ()
    quorum: str = NO_QUORUM


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint that satisfied a policy.

    Attributes:
        checkpoint: origin, size and root.
        time: newest verified cosignature time, POSIX s; None without witnesses.
        witnesses: policy names of the witnesses whose cosignatures verified.
    """

    checkpoint: Checkpoint
    time: int | None
    witnesses: frozenset[str]


@dataclass(slots=True)
class _Draft:
    """A policy while its lines are read."""

    logs: list[VerifierKey] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    quorum: str | None = None
    names: set[str] = field(default_factory=set)
    grouped: set[str] = field(default_factory=set)

    def claim(self, name: str) -> None:
        """Take a name for a witness or group."""
        if name in self.names or name == NO_QUORUM:
            raise TrustError("STO-L003", f"the name {name[:64]!r} is taken")
        self.names.add(name)

    def add_log(self, words: list[str]) -> None:
        """``log <vkey> [<url>]``."""
        key = parse_vkey(_word(words, 0, at_most=2))
        if key.kind is KeyType.COSIGNATURE:
            raise TrustError("STO-L003", "a log needs a signing key, not a cosigner's")
        if key.public in {known.public for known in self.logs}:
            raise TrustError("STO-L003", "the policy names one log key twice")
        self.logs.append(key)

    def add_witness(self, words: list[str]) -> None:
        """``witness <name> <vkey> [<url>]``."""
        name, key = _word(words, 0, at_most=3), parse_vkey(_word(words, 1, at_most=3))
        if key.kind is KeyType.ED25519:
            raise TrustError("STO-L003", f"witness {name[:64]!r} needs a cosigner key")
        if key.public in {known.key.public for known in self.witnesses}:
            raise TrustError("STO-L003", "the policy names one witness key twice")
        self.claim(name)
        self.witnesses.append(Witness(name, key))

    def add_group(self, words: list[str]) -> None:
        """``group <name> all|any|<k> <member>…``."""
        name, rule, members = _word(words, 0), _word(words, 1), tuple(words[2:])
        for member in members:
            if member not in self.names or member in self.grouped:
                raise TrustError("STO-L003", f"cannot group {member[:64]!r} here")
            self.grouped.add(member)
        self.claim(name)
        self.groups.append(Group(name, _threshold(rule, len(members)), members))

    def set_quorum(self, words: list[str]) -> None:
        """``quorum <name>|none``."""
        name = _word(words, 0, at_most=1)
        if self.quorum is not None or (name != NO_QUORUM and name not in self.names):
            raise TrustError("STO-L003", "the policy needs exactly one known quorum")
        self.quorum = name


def _word(words: list[str], place: int, *, at_most: int | None = None) -> str:
    if place >= len(words) or (at_most is not None and len(words) > at_most):
        raise TrustError("STO-L003", "a policy line has too few or too many words")
    return words[place]


def _threshold(rule: str, members: int) -> int:
    if rule == "all":
        rule = str(members)
    elif rule == "any":
        rule = "1"
    if not _COUNT.fullmatch(rule) or int(rule) > members:
        raise TrustError("STO-L003", f"a group of {members} cannot need {rule[:8]!r}")
    return int(rule)


def parse_policy(text: bytes) -> LogPolicy:
    """Parse a policy file.

    Raises:
        TrustError: ``STO-L003`` for the file, ``STO-L004`` for a key in it.
    """
    if len(text) > MAX_POLICY_BYTES or not _ALLOWED.fullmatch(text):
        raise TrustError("STO-L003", "the log policy is too long or not text")
    draft = _Draft()
    verbs = {
        "log": draft.add_log,
        "witness": draft.add_witness,
        "group": draft.add_group,
        "quorum": draft.set_quorum,
    }
    for line in text.decode(errors="surrogateescape").split("\n"):
        words = re.split(r"[ \t]+", line.strip(" \t"))
        if not words[0] or words[0].startswith("#"):
            continue
        if words[0] not in verbs:
            raise TrustError("STO-L003", f"unknown policy line: {words[0][:32]!r}")
        verbs[words[0]](words[1:])
    if draft.quorum is None:
        raise TrustError("STO-L003", "the policy has no quorum line")
    return LogPolicy(
        logs=tuple(draft.logs),
        witnesses=tuple(draft.witnesses),
        groups=tuple(draft.groups),
        quorum=draft.quorum,
    )


def render_policy(policy: LogPolicy) -> bytes:
    """Return the policy's file form."""
    lines = [f"log {render_vkey(key)}" for key in policy.logs]
    lines += [f"witness {one.name} {render_vkey(one.key)}" for one in policy.witnesses]
    lines += [
        f"group {group.name} {group.threshold} {' '.join(group.members)}"
        for group in policy.groups
    ]
    lines.append(f"quorum {policy.quorum}")
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


def vkey_policy(vkey: str) -> LogPolicy:
    """Return the policy that trusts one log key and asks for no witness."""
    return parse_policy(f"log {vkey.strip()}\nquorum none\n".encode())


def open_checkpoint(data: bytes, policy: LogPolicy) -> SignedCheckpoint:
    """Verify a published checkpoint under `policy`; `data` is hostile.

    Every signature by a known key must verify; unknown keys are passed over.

    Raises:
        TrustError: ``STO-L010``…``STO-L016``, naming what does not hold.
    """
    note = parse_note(data)
    checkpoint = parse_checkpoint(note.text)
    if not _signed_by_log(note, policy, checkpoint.origin):
        raise TrustError(
            "STO-L011", f"no trusted log signed the checkpoint of {checkpoint.origin!r}"
        )
    times = _verified_witnesses(note, policy)
    witnessed = set(times)
    for group in policy.groups:
        if sum(member in witnessed for member in group.members) >= group.threshold:
            witnessed.add(group.name)
    if policy.quorum != NO_QUORUM and policy.quorum not in witnessed:
        raise TrustError(
            "STO-L013", f"the witness quorum {policy.quorum!r} has not cosigned"
        )
    newest = max(times.values(), default=None)
    return SignedCheckpoint(checkpoint, newest, frozenset(times))


def _signed_by_log(note: Note, policy: LogPolicy, origin: str) -> bool:
    found = False
    for key in policy.logs:
        for item in note.signatures:
            if (item.name, item.key_id) == (key.name, key.key_id):
                verify_signature(note.text, item, key)
                found = found or key.name == origin
    return found


def _verified_witnesses(note: Note, policy: LogPolicy) -> dict[str, int]:
    times: dict[str, int] = {}
    for witness in policy.witnesses:
        for item in note.signatures:
            if (item.name, item.key_id) == (witness.key.name, witness.key.key_id):
                verify_signature(note.text, item, witness.key)
                times[witness.name] = max(item.time, times.get(witness.name, 0))
    return times
