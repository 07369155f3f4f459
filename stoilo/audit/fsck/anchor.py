"""What is signed: the checkpoints and the policy that says whose signature counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.audit.checkpoint import Checkpoint, parse_checkpoint
from stoilo.audit.keys import VerifierKey
from stoilo.audit.note import parse_note
from stoilo.audit.policy import (
    MAX_POLICY_BYTES,
    LogPolicy,
    open_checkpoint,
    parse_policy,
    render_policy,
)
from stoilo.audit.seal import unseal
from stoilo.core.errors import StoiloError

if TYPE_CHECKING:
    from stoilo.audit.fsck.parts import LogParts
    from stoilo.audit.headdb import HeadState
    from stoilo.audit.note import NoteSignature

__all__ = ["Anchor", "find_anchor", "read_policy"]

_FLIPPED_BITS = 4  # in a key id; another key's differs in 16 of 32, give or take
_HEAD_COPY = "the copy of the newest checkpoint"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A checkpoint to measure the log by.

    Attributes:
        checkpoint: origin, size and root.
        file: where it was found.
        is_signed: whether its signatures verified.
    """

    checkpoint: Checkpoint
    file: str
    is_signed: bool


def read_policy(parts: LogParts, given: LogPolicy | None) -> LogPolicy | None:
    """Check the log's own copy of its policy; return the policy to believe.

    `given` is trusted and wins; the log's own copy only lets it agree with itself.
    """
    text = parts.read("policy.txt", MAX_POLICY_BYTES)
    own = None
    if text is not None:
        own = _own_policy(parts, text)
    elif given is None:
        parts.found.fault(
            "STO-L005",
            parts.published("policy.txt"),
            "is missing, and no policy was given: no signature can be checked",
            remedy="give --policy, or restore policy.txt",
        )
    return given or own


def _own_policy(parts: LogParts, text: bytes) -> LogPolicy | None:
    name = parts.published("policy.txt")
    remedy = f"restore {name}; the server writes it again when it starts"
    try:
        policy = parse_policy(text)
    except StoiloError as error:
        parts.found.fault(error.code, name, error.message, remedy=remedy)
        return None
    plain = unseal(text)
    if plain != render_policy(policy):
        message = (
            "its last line does not fit the others"
            if plain is None
            else "is not in the form in which the log writes it"
        )
        parts.found.fault("STO-L094", name, message, remedy=remedy)
    return policy


def find_anchor(
    parts: LogParts,
    note: bytes | None,
    head: HeadState | None,
    policy: LogPolicy | None,
) -> Anchor | None:
    """Check the published checkpoint and its copy; return the best of them.

    `note` is the published one, as read before anything else.
    """
    published = _judge(parts, note, parts.published("checkpoint"), policy)
    copy = None
    if head is not None and parts.paths is not None:
        name = parts.name(parts.paths.head)
        copy = _judge(parts, head.published, name, policy, _HEAD_COPY)
    if published is None and copy is not None:
        parts.found.fault(
            "STO-L034",
            parts.published("checkpoint"),
            f"is missing or unreadable; one of {copy.checkpoint.size} leaves was "
            "published",
            remedy="restore the log directory; the head database holds a copy of it",
        )
    if published is not None and copy is not None:
        _compare(parts, published, copy)
    signed = [one for one in (published, copy) if one is not None and one.is_signed]
    return next(iter(signed), published or copy)


def _judge(
    parts: LogParts,
    note: bytes | None,
    file: str,
    policy: LogPolicy | None,
    place: str = "",
) -> Anchor | None:
    """Return what a note says; report what does not hold about it."""
    if note is None:
        return None
    remedy = f"restore {file} from the newest backup"
    try:
        if policy is not None:
            checkpoint = open_checkpoint(note, policy).checkpoint
            _check_lines(parts, note, file, policy, place)
            return Anchor(checkpoint, file, is_signed=True)
    except StoiloError as error:
        parts.found.fault(error.code, file, error.message, place=place, remedy=remedy)
    try:
        return Anchor(parse_checkpoint(parse_note(note).text), file, is_signed=False)
    except StoiloError as error:
        if policy is None:
            parts.found.fault(
                error.code, file, error.message, place=place, remedy=remedy
            )
        return None


def _check_lines(
    parts: LogParts, note: bytes, file: str, policy: LogPolicy, place: str
) -> None:
    """Report a signature line that is half of one of ours: nobody checks it then."""
    keys = [*policy.logs, *(one.key for one in policy.witnesses)]
    for item in parse_note(note).signatures:
        if any(_is_half(item, key) for key in keys):
            parts.found.fault(
                "STO-L012",
                file,
                f"the signature line of {item.name!r} has a wrong name or key id",
                place=place,
                remedy=f"restore {file} from the newest backup",
            )


def _is_half(item: NoteSignature, key: VerifierKey) -> bool:
    """Tell a damaged line from that of a key that has been replaced under its name."""
    differing = int.from_bytes(item.key_id) ^ int.from_bytes(key.key_id)
    if item.name != key.name:
        return differing == 0
    return 0 < differing.bit_count() <= _FLIPPED_BITS


def _compare(parts: LogParts, published: Anchor, copy: Anchor) -> None:
    size, known = published.checkpoint.size, copy.checkpoint.size
    if size < known:
        parts.found.fault(
            "STO-L045",
            published.file,
            f"covers {size} leaves, but a checkpoint of {known} was published",
            remedy="restore the newest backup of the log directory",
        )
    elif size == known and published.checkpoint != copy.checkpoint:
        parts.found.fault(
            "STO-L046",
            published.file,
            f"has another root than its copy in {copy.file} of the same size",
            remedy="keep both: signed by one key they prove misbehaviour",
        )
