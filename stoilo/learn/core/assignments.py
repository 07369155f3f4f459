"""Who computes which block of a batch: Parallel-SGD's assignments, as plain values.

A batch is a row of blocks, and each block belongs to one node or several. A node is a number
from 0: on volunteers it is whoever takes its tasks, and what it keeps is kept at the trainer.
Copies of one block are compared (`stoilo.learn.methods.copies`), or the first one counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part

MOST_BLOCKS = 10_000


@dataclass(frozen=True, slots=True)
class Assignment:
    """Blocks and their owners.

    Attributes:
        nodes: how many there are.
        owners: of each block, the nodes that compute it.
        ratios: of each block, its size beside the others'; equal when empty.
    """

    nodes: int
    owners: tuple[tuple[int, ...], ...]
    ratios: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse blocks that nobody computes, and nodes that do not exist."""
        known = set(range(self.nodes))
        owned = all(own and len({*own}) == len(own) for own in self.owners)
        exist = {node for own in self.owners for node in own} <= known
        ratios = self.ratios or (1.0,) * len(self.owners)
        sized = len(ratios) == len(self.owners) and all(
            0.0 < ratio < math.inf for ratio in ratios
        )
        if not (self.owners and owned and exist and sized):
            raise _refused(
                f"{len(self.owners)} blocks on {self.nodes} nodes are no assignment",
                "each block has different owners below `nodes` and a ratio above 0",
            )

    @property
    def blocks(self) -> int:
        """How many blocks a batch has."""
        return len(self.owners)

    @property
    def redundancy(self) -> int:
        """How many owners each block has at least."""
        return min(map(len, self.owners))

    def order_of(self, block: int) -> tuple[int, ...]:
        """Return all nodes, those who own the block first: who is asked in turn."""
        own = self.owners[block]
        return (*own, *(node for node in range(self.nodes) if node not in own))

    def adjust_ratio(self, ratios: Sequence[float]) -> Assignment:
        """Return the assignment with blocks whose sizes stand to each other like `ratios`."""
        return replace(self, ratios=tuple(ratios))

    def sizes(self, block_size: int) -> tuple[int, ...]:
        """Return the samples of each block; together ``block_size * blocks``, none empty.

        Raises:
            UsageError: ``STO-T040`` where a block would have none.
        """
        ratios = np.array(self.ratios or (1.0,) * self.blocks)
        exact = ratios / ratios.sum() * block_size * self.blocks
        found = np.floor(exact + 1e-9).astype(int)
        # What rounding left goes to the largest remainders, the first of equals before.
        left = block_size * self.blocks - int(found.sum())
        found[np.argsort(found - exact, kind="stable")[:left]] += 1
        if found.min() < 1:
            raise _refused("a block would have no sample", "larger blocks or ratios")
        return tuple(found.tolist())

    def deal(self, whole: Part, block_size: int) -> list[Part]:
        """Return each block's samples of all batches, one part a block, in their order.

        Batch t is the samples from ``t * batch`` on, and block k of it the k-th slice; the
        last batch may be cut.

        Raises:
            UsageError: ``STO-T004`` with too few samples to begin each block.
        """
        sizes = self.sizes(block_size)
        starts, batch = np.cumsum([0, *sizes])[:-1], sum(sizes)
        place = np.arange(len(whole)) % batch
        if len(whole) <= starts[-1]:
            raise UsageError(
                "STO-T004",
                f"{len(whole)} samples do not reach the last of {self.blocks} blocks",
                hint="smaller blocks, or fewer",
            )
        return [
            whole.take(np.flatnonzero((place >= start) & (place < start + size)))
            for start, size in zip(starts, sizes, strict=True)
        ]


def assign_iid(nodes: int, redundancy: int = 1) -> Assignment:
    """Return a block for each set of so many nodes: any ``n - r + 1`` nodes hold all.

    With 4 nodes and redundancy 2: 6 blocks, 3 on each node; with 5 and 3: 10, and 6.

    Raises:
        UsageError: ``STO-T040``.
    """
    _check(nodes, redundancy)
    if math.comb(nodes, redundancy) > MOST_BLOCKS:
        raise _refused(
            f"{nodes} nodes have {math.comb(nodes, redundancy)} sets of {redundancy}",
            f"at most {MOST_BLOCKS} blocks: another redundancy, or assign_duplicate",
        )
    return Assignment(nodes, tuple(itertools.combinations(range(nodes), redundancy)))


def assign_duplicate(nodes: int, redundancy: int = 1) -> Assignment:
    """Return ``nodes / redundancy`` blocks, each on so many nodes that follow each other.

    Raises:
        UsageError: ``STO-T040`` unless the redundancy divides the nodes.
    """
    _check(nodes, redundancy)
    if nodes % redundancy:
        raise _refused(
            f"{nodes} nodes cannot be shared out in groups of {redundancy}",
            "a redundancy that divides the number of nodes, or assign_iid",
        )
    groups = range(0, nodes, redundancy)
    return Assignment(
        nodes, tuple(tuple(range(start, start + redundancy)) for start in groups)
    )


def _check(nodes: int, redundancy: int) -> None:
    if not 1 <= redundancy <= nodes:
        raise _refused(
            f"redundancy {redundancy} on {nodes} nodes", "1 ≤ redundancy ≤ nodes"
        )


def _refused(what: str, hint: str) -> UsageError:
    return UsageError("STO-T040", what, hint=hint)
