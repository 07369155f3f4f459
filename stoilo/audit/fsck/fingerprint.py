"""Does the index of places agree with the leaves? Two passes in order, no look-ups.

Both sides give one number that does not depend on the order: the sum of hash * (place+1)
over all rows, exact. One wrong hash or place changes it. It tells whether there is a
fault, not where, and it does not resist somebody who chooses rows on purpose: every use
of the index compares the leaf itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.audit.merkle import HASH_BYTES, leaf_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stoilo.audit.fsck.leaves import LeafRows

__all__ = ["is_index_right"]

_CHUNK = 256


def is_index_right(rows: LeafRows, indexed: int) -> bool:
    """Tell whether the table of places holds exactly the first `indexed` leaves.

    Later leaves, which may be on their way into the table, are left out.

    Raises:
        sqlite3.DatabaseError: the file cannot be read there.
    """
    found = _sum_of_table(rows, indexed)
    return found is not None and found == _sum_of_leaves(rows, indexed)


def _sum_of_table(rows: LeafRows, indexed: int) -> int | None:
    """Return the table's number; None when a row is malformed or one is missing."""
    total = count = 0
    for digest, place in rows.select("SELECT hash, idx FROM places"):
        if type(digest) is not bytes or type(place) is not int or place < 0:
            return None
        if len(digest) != HASH_BYTES:
            return None
        if place < indexed:
            total += int.from_bytes(digest, "big") * (place + 1)
            count += 1
    return total if count == indexed else None


def _sum_of_leaves(rows: LeafRows, indexed: int) -> int | None:
    """Return the leaves' number; None when one is missing or malformed."""
    total = 0
    query = "SELECT leaf FROM leaves WHERE idx >= ? AND idx < ? ORDER BY idx"
    for start in range(0, indexed, _CHUNK):
        end = min(start + _CHUNK, indexed)
        leaves = [row[0] for row in rows.select(query, start, end)]
        if len(leaves) != end - start or not all(type(one) is bytes for one in leaves):
            return None
        total += _weigh(start, leaf_hashes(leaves))
    return total


def _weigh(start: int, hashes: Iterable[bytes]) -> int:
    return sum(
        int.from_bytes(digest, "big") * place
        for place, digest in enumerate(hashes, start + 1)
    )
