"""Fuzz the log's formats: `python tests/fuzz/fuzz_log_formats.py [SECONDS] [SEED]`.

Mutates valid notes, checkpoints, keys, proofs, policies, histories, bundles, tile names,
leaves and records (flip, cut, splice, lines shuffled) and checks that every
input ends in a value, which is written back to the same bytes where the form is unique,
or in one of our errors. A changed proof must never be accepted. Prints seed and counts.
"""

import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stoilo.audit.format.merkle import (
    Checkpoint,
    inclusion_proof,
    leaf_hash,
    parse_checkpoint,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.misbehaviour import check_misbehaviour, render_misbehaviour
from stoilo.audit.format.note import (
    KeyType,
    Note,
    cosign_note,
    parse_note,
    parse_vkey,
    render_note,
    render_vkey,
    sign_note,
)
from stoilo.audit.format.policy import (
    LogPolicy,
    Witness,
    open_checkpoint,
    parse_policies,
    succeed,
)
from stoilo.audit.format.proof import (
    Leaf,
    LeafKind,
    Proof,
    check_proof,
    parse_leaf,
    parse_proof,
    render_leaf,
    render_proof,
)
from stoilo.audit.format.tiles import (
    decode_bundle,
    encode_bundle,
    parse_tile_path,
    render_tile_path,
)
from stoilo.audit.log.seen import SeenRow, parse_seen_page, render_seen_row
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from tests.support.faulty_log import render_policies
from tests.support.memory_tree import MemoryTree
from tests.support.notekeys import NoteKey
from tests.support.turns import turns_within

ORIGIN = "log.test/t"
LOG = NoteKey.from_seed(ORIGIN, KeyType.ED25519, b"\1" * 32)
OLD = NoteKey.from_seed("old.test", KeyType.COSIGNATURE, b"\2" * 32)
NEW = NoteKey.from_seed("new.test", KeyType.ML_DSA_44, b"\3" * 32)
LEAVES = [
    render_leaf(Leaf(LeafKind.ADMISSION, content_digest(b"%d" % at), "1", at))
    for at in range(9)
]


def policy_of(key: NoteKey) -> LogPolicy:
    return LogPolicy((LOG.vkey,), (Witness("w", key.vkey),), (), "w")


POLICY = succeed(policy_of(OLD), policy_of(NEW), now=2000, size=9)


TREE = MemoryTree(map(leaf_hash, LEAVES))
SIGNED = Checkpoint(ORIGIN, 9, range_root(0, 9, TREE.node))
PATH = tuple(inclusion_proof(5, 9, TREE.node))


def note_of(key: NoteKey) -> bytes:
    body = render_checkpoint(SIGNED)
    signed = sign_note(body, ORIGIN, LOG.private)
    cosigned = cosign_note(body, key.vkey.name, key.private, 1000)
    return render_note(Note(body, (signed, cosigned)))


def proof_of(key: NoteKey) -> bytes:
    return render_proof(Proof(5, PATH, note_of(key)))


def read_note(data: bytes) -> None:
    assert render_note(parse_note(data)) == data
    assert open_checkpoint(data, POLICY).checkpoint == SIGNED, "not what was signed"


def read_checkpoint(data: bytes) -> None:
    assert render_checkpoint(parse_checkpoint(data)) == data


def read_proof(data: bytes) -> None:
    parsed = parse_proof(data)
    proven = check_proof(data, LEAVES[5], POLICY)
    assert (proven.index, proven.size, proven.root) == (5, 9, SIGNED.root)
    assert parsed.path == PATH, "another path was accepted"


def read_policies(data: bytes) -> None:
    policy = parse_policies(data)
    assert parse_policies(render_policies(policy)) == policy


def read_vkey(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    assert render_vkey(parse_vkey(text)) == text


def read_bundle(data: bytes) -> None:
    entries = decode_bundle(data, 9)
    assert data.startswith(encode_bundle(entries))


def read_tile_path(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert render_tile_path(parse_tile_path(text)) == text


def read_leaf(data: bytes) -> None:
    assert render_leaf(parse_leaf(data)) == data


def misbehaviour() -> bytes:
    """Return the proof that the log once signed six other leaves."""
    root = MemoryTree(map(leaf_hash, LEAVES[3:])).node(1, 0)
    body = render_checkpoint(Checkpoint(ORIGIN, 6, root))
    other = render_note(Note(body, (sign_note(body, ORIGIN, LOG.private),)))
    return render_misbehaviour(other, note_of(OLD), TREE.node)


def read_misbehaviour(data: bytes) -> None:
    shown = check_misbehaviour(data, POLICY)
    assert shown.root == range_root(0, shown.first.size, TREE.node)
    assert shown.root != shown.first.root, "an honest log was accused"


def read_seen(data: bytes) -> None:
    for row in parse_seen_page(data):
        assert parse_seen_page(render_seen_row(row)) == (row,)


SEEN = render_seen_row(SeenRow("a" * 64, "b" * 64, 1, "c" * 64, note_of(OLD).decode()))


@dataclass(frozen=True, slots=True)
class Target:
    """A parser and inputs that it takes."""

    read: Callable[[bytes], None]
    corpus: list[bytes]


TARGETS = [
    Target(read_note, [note_of(OLD)] * 3 + [note_of(NEW)]),
    Target(read_checkpoint, [note_of(OLD).partition(b"\n\n")[0] + b"\n"]),
    Target(read_proof, [proof_of(OLD)] * 3 + [proof_of(NEW)]),
    Target(read_policies, [render_policies(POLICY), render_policies(policy_of(OLD))]),
    Target(read_vkey, [render_vkey(key.vkey).encode() for key in (LOG, OLD, NEW)]),
    Target(read_bundle, [encode_bundle(LEAVES)]),
    Target(read_tile_path, [b"tile/0/x001/x234/067", b"tile/entries/000.p/17"]),
    Target(read_leaf, LEAVES),
    Target(read_misbehaviour, [misbehaviour()]),
    Target(read_seen, [SEEN, SEEN * 3]),
]


def mutate(chooser: random.Random, data: bytes, other: bytes) -> bytes:
    """Return `data` changed in up to four ways; sometimes not at all."""
    mutant = bytearray(data)
    for _ in range(chooser.randint(0, 4)):
        at = chooser.randrange(len(mutant) + 1)
        match chooser.randrange(6):
            case 0 if at < len(mutant):
                mutant[at] ^= 1 << chooser.randrange(8)
            case 1:
                del mutant[at : at + chooser.randrange(1, 40)]
            case 2:
                cut = chooser.randrange(len(other) + 1)
                mutant[at:at] = other[cut : cut + chooser.randrange(1, 200)]
            case 3:
                mutant[at:at] = chooser.choice(
                    [b"\n", b"\n\n", b" ", b"\0", b"\xff", b"0", b"-1", b"+", b"9" * 30]
                )
            case 4:
                lines = bytes(mutant).split(b"\n")
                chooser.shuffle(lines)
                mutant = bytearray(b"\n".join(lines))
            case 5:
                lines = bytes(mutant).split(b"\n")
                lines.insert(chooser.randrange(len(lines)), chooser.choice(lines))
                mutant = bytearray(b"\n".join(lines))
    return bytes(mutant)


def fuzz(turns: Iterable[int], seed: int) -> tuple[int, int]:
    """Return how many inputs were read and how many refused."""
    chooser = random.Random(seed)
    accepted = refused = 0
    for _ in turns:
        target = chooser.choice(TARGETS)
        other = chooser.choice(chooser.choice(TARGETS).corpus)
        data = mutate(chooser, chooser.choice(target.corpus), other)
        try:
            target.read(data)
        except StoiloError:
            refused += 1
        else:
            accepted += 1
    return accepted, refused


if __name__ == "__main__":
    budget = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    start = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    print(f"seed {start}")
    print("accepted {}, refused {}".format(*fuzz(turns_within(budget), start)))
