"""A model of 16 MiB to twelve nodes and a sum from them, live: star, tree and ours.

Each node is a process in a network of its own, behind token buckets of random 155 to
455 Mbit/s in both directions (root, and a Linux that allows it; no rows elsewhere), over TCP
with TLS. All three run in the same networks through the same program, one after the other.
The bound knows all rates beforehand, and no time but that of the bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from bench.rows import Row
from bench.traffic.trees import Access, bound_receipts, bound_sum
from tests.support.networks import Network, Site, find_obstacle

SEEDS, ROUNDS, NODES, MODEL = range(3), 3, 12, 16 << 20
_REACH = 0.30
_MBIT = 125_000  # bytes/s


def measure(
    seeds: Sequence[int] = SEEDS, nodes: int = NODES, size: int = MODEL
) -> list[Row]:
    """Return mean receipt times, and times until the root has the sum."""
    if find_obstacle():
        return []
    spread: dict[str, list[float]] = {"star": [], "tree": [], "ours": [], "bound": []}
    added: dict[str, list[float]] = {name: [] for name in spread}
    for seed in seeds:
        with Network.draw(nodes, seed) as network:
            for plan in ("star", "tree", "ours"):
                with tempfile.TemporaryDirectory() as folder:
                    once = run(network, plan, Path(folder), size)
                spread[plan].append(once[0])
                added[plan].append(once[1])
            access = {
                name: Access(out * _MBIT, back * _MBIT)
                for name, (out, back) in network.rates.items()
            }
            spread["bound"].append(fmean(bound_receipts(access, "root", size)))
            added["bound"].append(bound_sum(access, "root", size))
    return [
        *_compare("a model to all nodes, live: mean receipt", spread, _REACH),
        *_compare("a sum from all nodes, live: until the root has it", added),
    ]


def run(network: Network, plan: str, folder: Path, size: int) -> tuple[float, float]:
    """Return the means of some rounds of a plan, s: receipt, and sum."""
    rounds = range(1, ROUNDS + 1)  # of a star, too: each takes a tenth more or less
    with Site(folder, network, plan) as site:
        receipts = [site.spread(number, size) for number in rounds]
        sums = [site.add_up(number, size) for number in rounds]
    return fmean(receipts), fmean(sums)


def _compare(what: str, found: dict[str, list[float]], reach: float = 0.0) -> list[Row]:
    mean = {name: fmean(times) for name, times in found.items()}
    rows = []
    for name in ("star", "tree", "bound"):
        ratio, target = mean["ours"] / mean[name], reach if name == "star" else 0.0
        rows.append(
            Row(
                name=what,
                ours=mean["ours"],
                unit="s",
                peer_name=name,
                peer=mean[name],
                ratio=ratio,
                ratio_of="of its time",
                target=f"≤ {target}" if target else "",
                met=ratio <= target if target else None,
            )
        )
    return rows
