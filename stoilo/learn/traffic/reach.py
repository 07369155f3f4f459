"""How fast nodes are for volunteers' networks, as a coordinator knows it: by what nodes say.

Volunteers report nothing to a coordinator, so here one end's word has to do: it orders the
addresses that a project names to hosts, and nothing else. Networks stay in memory only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from stoilo.learn.traffic import wire as w
from stoilo.learn.traffic.distribution import AT_FAULT, Distribution
from stoilo.learn.traffic.links import FASTEST, MEMORY, Fault, Node

MOST_RATES = 16_384  # pairs of node and network; the oldest word goes first


class Reach:
    """Rates of downloads, which are forgotten after some versions as those of links are."""

    def __init__(self) -> None:
        self._rates = dict[tuple[Node, str], tuple[float, int]]()  # bytes/s, since when
        self._iteration = 0

    def advance(self, iteration: int) -> None:
        """Begin a version."""
        self._iteration = iteration

    def hear(self, node: Node, report: w.Reached) -> None:
        """Take a node's word; none is faster than any network."""
        for network, (size, seconds) in report.downloads.items():
            if math.isfinite(seconds) and seconds > 0:
                rate = min(size / seconds, FASTEST)
                self._rates.pop((node, network), None)
                self._rates[node, network] = rate, self._iteration
        for old in [*self._rates][:-MOST_RATES]:
            del self._rates[old]

    def locate(
        self,
        urls: Mapping[Node, str],  # of the nodes that are there; empty: none
        versions: Iterable[tuple[str, Distribution]],  # digest, who has it
        named: Mapping[Node, list[Fault]],  # who is at fault, and of what
    ) -> w.Located:
        """Return where volunteers get which version; rates of who is named do not count."""
        fair = [n for n in urls if not {*named.get(n, ())}.intersection(AT_FAULT)]
        rates = [
            (node, network, rate)
            for (node, network), (rate, since) in self._rates.items()
            if self._iteration - since <= MEMORY and node in fair and node not in named
        ]
        holders = {
            digest: [node for node in one.holders if node in fair]
            for digest, one in versions
        }
        return w.Located({n: urls[n] for n in fair if urls[n]}, holders, rates)
