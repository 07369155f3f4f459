"""Which logs and witnesses a reader trusts (c2sp.org/tlog-policy), and the check by it.

A policy is configuration: it comes out of the verifier's release metadata or from the
auditor's hand, never from the log it judges. (A log may publish a copy as
``policy.txt``; trusting that copy says only that the log agrees with itself.)

Policies age: witnesses and log keys are replaced, and proofs made before stay good until
somebody takes the old policy out. What is current stands first and is plain tlog-policy;
each older policy follows a line of our own, newest first:

    retired <since> <until> <max size>

`since` and `until` are POSIX seconds: only cosignatures that state a time between them
count. `max size` (leaves) bounds the checkpoints that the old policy may speak for. A
policy without witnesses has no times to look at, so its size must be bounded; and where
the current policy demands witnesses no older one may do without, or a thief of the log's
key could show a short private fork under it. What this cannot do: a stolen old witness
key may state an old time. Then take the old policy out, or lower its size to what other
witnesses saw.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from stoilo.audit.format.merkle import (
    MAX_SIZE,
    Checkpoint,
    parse_checkpoint,
    parse_size,
)
from stoilo.audit.format.note import (
    MAX_TIME,
    KeyType,
    Note,
    NoteSignature,
    VerifierKey,
    parse_note,
    parse_vkey,
    render_vkey,
    verify_signature,
)
from stoilo.core.errors import TrustError

MAX_POLICY_BYTES = 256 * 1024
NO_QUORUM = "none"
# What an older policy may still accept. A wrong signature no policy accepts.
_NOT_OURS = frozenset({"STO-L011", "STO-L013"})
_ALLOWED = re.compile(rb"[\t\n\x20-\x7e\x80-\xff]*")
_URL = re.compile(r"https?://[\x21-\x7e]{1,1000}")
_COUNT = re.compile(r"[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class Witness:
    """A cosigner under its name in the policy."""

    name: str  # the policy's own name for it
    key: VerifierKey  # its cosigner key
    # prefix of its submission interface (http or https), empty when unsaid
    url: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A group that has witnessed when at least `threshold` of its members have."""

    name: str
    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """Trusted logs, witnesses and the quorum."""

    logs: tuple[VerifierKey, ...]  # keys of logs, any of which may have signed
    witnesses: tuple[Witness, ...] = ()  # keys of cosigners
    groups: tuple[Group, ...] = ()  # groups of witnesses and of earlier groups
    quorum: str = NO_QUORUM  # ``none``, or the name of a witness or group
    # policies that were in force before, newest first; a checkpoint that this one does
    # not accept may still be theirs
    older: tuple[RetiredPolicy, ...] = ()

    @property
    def current(self) -> LogPolicy:
        """This policy without the older ones: what anything new must satisfy."""
        return replace(self, older=()) if self.older else self


@dataclass(frozen=True, slots=True)
class RetiredPolicy:
    """A policy that is no longer in force, and for which checkpoints it still speaks."""

    policy: LogPolicy  # as it was
    since: int = 0  # POSIX seconds; cosignatures stating an earlier time do not count
    # POSIX seconds; cosignatures stating a later time do not count
    until: int = MAX_TIME
    max_size: int = MAX_SIZE  # leaves; larger checkpoints are not accepted under it

    @property
    def is_bare(self) -> bool:
        """Whether it asks for no witness."""
        return self.policy.quorum == NO_QUORUM


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint that satisfied a policy."""

    checkpoint: Checkpoint  # origin, size and root
    # newest verified cosignature time, POSIX s; None without witnesses
    time: int | None
    # policy names of the witnesses whose cosignatures verified
    witnesses: frozenset[str]
    retired: bool = False  # True when only an older policy accepted it
    # newest time that a whole quorum has reached, POSIX s: witnesses below the quorum,
    # dishonest or with a wrong clock, cannot move it forward. None without witnesses.
    agreed: int | None = None


@dataclass(slots=True)
class _Draft:
    """A policy while its lines are read."""

    logs: list[VerifierKey] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    quorum: str | None = None
    names: set[str] = field(default_factory=set)  # of witnesses and groups
    grouped: set[str] = field(default_factory=set)

    def take(self, words: list[str]) -> None:  # noqa: C901 - a case a kind of line
        """Take one line."""
        match words:
            case ["log", vkey] | ["log", vkey, _]:
                key = _key(vkey, self.logs)
                if key.kind is KeyType.COSIGNATURE:
                    raise _bad("a log needs a signing key, not a cosigner's")
                self.logs.append(key)
            case ["witness", name, vkey, *urls] if len(urls) <= 1:
                key = _key(vkey, (known.key for known in self.witnesses))
                if key.kind is KeyType.ED25519:
                    raise _bad(f"witness {name[:64]!r} needs a cosigner key")
                if urls and not _URL.fullmatch(urls[0]):
                    raise _bad(f"not an http(s) URL: {urls[0][:64]!r}")
                self._claim(name)
                self.witnesses.append(Witness(name, key, *urls))
            case ["group", name, rule, *members]:
                for member in members:
                    if member not in self.names or member in self.grouped:
                        raise _bad(f"cannot group {member[:64]!r} here")
                    self.grouped.add(member)
                self._claim(name)
                least = _threshold(rule, len(members))
                self.groups.append(Group(name, least, tuple(members)))
            case ["quorum", name]:
                known = name in self.names or name == NO_QUORUM
                if self.quorum is not None or not known:
                    raise _bad("the policy needs exactly one known quorum")
                self.quorum = name
            case ["log" | "witness" | "group" | "quorum", *_]:
                raise _bad("a policy line has too few or too many words")
            case _:
                raise _bad(f"unknown policy line: {words[0][:32]!r}")

    def _claim(self, name: str) -> None:
        if name in self.names or name == NO_QUORUM:
            raise _bad(f"the name {name[:64]!r} is taken")
        self.names.add(name)


def _bad(message: str) -> TrustError:
    return TrustError("STO-L003", message)


def _key(vkey: str, known: Iterable[VerifierKey]) -> VerifierKey:
    key = parse_vkey(vkey)
    if key.public in {one.public for one in known}:
        raise _bad("the policy names one key twice")
    return key


def _threshold(rule: str, members: int) -> int:
    rule = {"all": str(members), "any": "1"}.get(rule, rule)
    if not _COUNT.fullmatch(rule) or int(rule) > members:
        raise _bad(f"a group of {members} cannot need {rule[:8]!r}")
    return int(rule)


def parse_policy(text: bytes) -> LogPolicy:
    """Parse a policy file.

    Raises:
        TrustError: ``STO-L003`` for the file, ``STO-K001`` for a key in it.
    """
    if len(text) > MAX_POLICY_BYTES or not _ALLOWED.fullmatch(text):
        raise _bad("the log policy is too long or not text")
    draft = _Draft()
    for line in text.decode(errors="surrogateescape").split("\n"):
        words = re.split(r"[ \t]+", line.strip(" \t"))
        if words[0] and not words[0].startswith("#"):
            draft.take(words)
    if draft.quorum is None:
        raise _bad("the policy has no quorum line")
    return LogPolicy(
        logs=tuple(draft.logs),
        witnesses=tuple(draft.witnesses),
        groups=tuple(draft.groups),
        quorum=draft.quorum,
    )


def render_policy(policy: LogPolicy) -> bytes:
    """Return the policy's file form."""
    lines = [f"log {render_vkey(key)}" for key in policy.logs]
    lines += [
        f"witness {one.name} {render_vkey(one.key)} {one.url}".rstrip()
        for one in policy.witnesses
    ]
    lines += [
        f"group {group.name} {group.threshold} {' '.join(group.members)}"
        for group in policy.groups
    ]
    lines.append(f"quorum {policy.quorum}")
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")


def log_keys_of(policy: LogPolicy) -> LogPolicy:
    """Return the policy that asks for the log's own signature and for no witness.

    For what the log answers for by its key alone: two histories, for example.
    """
    older = tuple(
        replace(one, policy=LogPolicy(one.policy.logs)) for one in policy.older
    )
    return LogPolicy(policy.logs, older=older)


def open_checkpoint(data: bytes, policy: LogPolicy) -> SignedCheckpoint:
    """Verify a published checkpoint under `policy`; `data` is hostile.

    Every signature by a known key must verify; unknown keys are passed over. Where the
    policy finds no log or no quorum, its older ones are asked, newest first.

    Raises:
        TrustError: ``STO-L010``…``STO-L016``, naming what does not hold.
    """
    note = parse_note(data)
    checkpoint = parse_checkpoint(note.text)
    refusals: list[TrustError] = []
    for rules in (RetiredPolicy(policy), *policy.older):
        try:
            found = _open_note(note, checkpoint, rules)
        except TrustError as error:
            if error.code not in _NOT_OURS:
                raise
            refusals.append(error)
        else:
            return replace(found, retired=bool(refusals))
    raise refusals[0]  # what the policy of today says


def _open_note(
    note: Note, checkpoint: Checkpoint, rules: RetiredPolicy
) -> SignedCheckpoint:
    """Verify a parsed checkpoint under one policy and its window."""
    policy = rules.policy
    signers = {key.name for key in policy.logs if _verified(note, key)}
    if checkpoint.size > rules.max_size or checkpoint.origin not in signers:
        text = f"no trusted log signed the checkpoint of {checkpoint.origin!r}"
        raise TrustError("STO-L011", text)
    said = {one.name: _verified(note, one.key) for one in policy.witnesses}
    times = {
        name: time
        for name, items in said.items()
        # A witness always states when (tlog-witness).
        if (time := max((item.time for item in items), default=0))
        and rules.since <= time <= rules.until
    }
    if not has_quorum(policy, times):
        text = f"the witness quorum {policy.quorum!r} has not cosigned"
        raise TrustError("STO-L013", text)
    newest = max(times.values(), default=None)
    agreed = _agreed_time(policy, times)
    return SignedCheckpoint(checkpoint, newest, frozenset(times), agreed=agreed)


def _agreed_time(policy: LogPolicy, times: dict[str, int]) -> int | None:
    """Return the newest time that witnesses enough for the quorum have reached."""
    # Not the newest time: one witness with a wrong clock could move that forward.
    for time in sorted(set(times.values()), reverse=True):
        if has_quorum(policy, (name for name, said in times.items() if said >= time)):
            return time
    return None


def has_quorum(policy: LogPolicy, cosigners: Iterable[str]) -> bool:
    """Return whether witnesses of these policy names are what the policy demands."""
    witnessed = set(cosigners)
    for group in policy.groups:
        if sum(member in witnessed for member in group.members) >= group.threshold:
            witnessed.add(group.name)
    return policy.quorum == NO_QUORUM or policy.quorum in witnessed


def _verified(note: Note, key: VerifierKey) -> list[NoteSignature]:
    """Return the signatures by one key; one that does not verify spoils the note."""
    by = (key.name, key.key_id)
    found = [one for one in note.signatures if (one.name, one.key_id) == by]
    for item in found:
        verify_signature(note.text, item, key)
    return found


MAX_RETIRED = 32
_HEAD = re.compile(rb"^[ \t]*retired[ \t]+([^\n]*)$", re.MULTILINE)


def parse_policies(text: bytes) -> LogPolicy:
    """Parse a policy and the older ones below it, if any.

    Raises:
        TrustError: ``STO-L003``, or ``STO-K001`` for a key.
    """
    first = _HEAD.search(text)
    end = first.start() if first else len(text)
    current = parse_policy(text[:end])
    return with_history(current, parse_history(text[end:])) if first else current


def with_history(current: LogPolicy, older: tuple[RetiredPolicy, ...]) -> LogPolicy:
    """Return `current` with its predecessors, newest first.

    Raises:
        TrustError: ``STO-L003`` when one would do without witnesses and `current` not.
    """
    if current.quorum != NO_QUORUM and any(one.is_bare for one in older):
        raise _bad("an older policy without witnesses would undo those of today")
    return replace(current, older=older)


def parse_history(text: bytes) -> tuple[RetiredPolicy, ...]:
    """Parse ``retired`` sections, newest first; see `parse_policies`."""
    before, *pieces = _HEAD.split(text)
    heads, bodies = pieces[::2], pieces[1::2]
    is_too_long = len(text) > MAX_POLICY_BYTES or len(heads) > MAX_RETIRED
    if before.strip(b" \t\n") or not heads or is_too_long:
        raise _bad(f"a history has 1 to {MAX_RETIRED} sections, each `retired …`")
    return tuple(map(_parse_section, heads, bodies))


def _parse_section(head: bytes, body: bytes) -> RetiredPolicy:
    words = head.decode(errors="replace").split()
    if len(words) != 3:  # noqa: PLR2004 - since, until, size
        raise _bad("`retired` takes since, until and size")
    since, until, size = (parse_size(word, code="STO-L003") for word in words)
    retired = RetiredPolicy(parse_policy(body), since, until, size)
    if since > until or (retired.is_bare and size == MAX_SIZE):
        raise _bad("a retired policy's window is empty, or nothing bounds its size")
    return retired


def render_history(older: tuple[RetiredPolicy, ...]) -> bytes:
    """Return the ``retired`` sections; empty for none."""
    return b"".join(
        b"retired %d %d %d\n" % (one.since, one.until, one.max_size)
        + render_policy(one.policy)
        for one in older
    )


def succeed(
    old: LogPolicy,  # the policy in force, with its own older ones
    new: LogPolicy,  # its successor; its older ones are dropped
    *,
    now: int,  # POSIX seconds of the change
    size: int,  # leaves of the newest checkpoint accepted under `old`
) -> LogPolicy:
    """Return `new`, under which what `old` accepted up to now stays acceptable.

    Where `new` demands witnesses, predecessors that demanded none are forgotten.

    Raises:
        TrustError: ``STO-L003`` when there are too many to remember.
    """
    if new.current == old.current:
        return old
    retired = (RetiredPolicy(old.current, 0, now, size), *old.older)
    if new.quorum != NO_QUORUM:
        retired = tuple(one for one in retired if not one.is_bare)
    if len(retired) > MAX_RETIRED:
        raise _bad(f"at most {MAX_RETIRED} policies are remembered")
    return with_history(new, retired)
