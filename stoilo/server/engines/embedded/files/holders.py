"""Where a host looks for a shared file first: nodes that have it, by measured rate. Pure.

What nodes and their dispatcher say only orders addresses: hosts check every byte, and the
project's own address comes last. Source: TSEngine's AL-CSP, for receivers that come by
themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Protocol

P_MAX = 0.9  # share of choices by rate once all rates are known; the rest explores


@dataclass(frozen=True, slots=True)
class Holders:
    """What a project's nodes said last."""

    # file's digest → URLs with final slash, under which it lies by that name
    urls: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # clients' network → URL → bytes/s that went there
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Nodes(Protocol):
    """A project's own nodes, as its server sees them; any thread may call."""

    on_news: Callable[[], None]  # called when a node comes that was not there

    def start(self) -> None:
        """Begin to hand out and to ask, in threads."""
        ...

    def stop(self) -> None:
        """End that."""
        ...

    def offer(self, digest: str, path: Path) -> None:
        """Let a file spread among them, some time, once; never waits or fails."""
        ...

    def holders(self) -> Holders:
        """Return who has what; nothing while nobody can say."""
        ...


def order_urls(
    urls: Collection[str],  # who may have the file
    rates: Mapping[str, float],  # URL → bytes/s to this host's network, where known
    host: int,
    digest: str,  # the file's
) -> list[str]:
    """Return where to look first, second and so on.

    With probability p = min(known / all, 0.9) the fastest known goes first; otherwise one
    that nobody knows, or any where all are known. The lot is drawn by host and file, so
    asked twice it says the same. Among equals each host has an order of its own (rendezvous
    hashing): hosts spread evenly, and a mirror that comes or goes moves no host but its own.
    """
    ranked = sorted(urls, key=lambda url: _draw(url, host))
    known = sorted((u for u in ranked if u in rates), key=lambda u: -rates[u])
    unknown = [url for url in ranked if url not in rates]
    lot = int.from_bytes(_draw(digest, host), "big")
    if not ranked or lot % 1000 < 1000 * min(len(known) / len(ranked), P_MAX):
        return known + unknown
    tried = unknown[0] if unknown else known[lot // 1000 % len(known)]
    return [tried, *(url for url in known + unknown if url != tried)]


def network_of(address: str) -> str:
    """Return the network of a client: /24, or /48 of IPv6; empty for what is no address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    found = getattr(found, "ipv4_mapped", None) or found
    return str(ip_network((found, 24 if found.version == 4 else 48), strict=False))  # noqa: PLR2004


def _draw(name: str, host: int) -> bytes:
    """Return a host's draw of a name; the smallest goes first."""
    return hashlib.sha256(f"{host}\0{name}".encode()).digest()
