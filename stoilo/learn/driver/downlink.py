"""What volunteers see of each version: the whole of it, or deltas against one they hold.

A blob never changes, so a host that works on keeps what came before and fetches one small
delta. A task names the newest whole version and all deltas since; the kernel adds them one by
one in that order (`stoilo.learn.kernels.encoding.arrive`), and so does this process: what a
volunteer computes at is, to the last bit, what an order says here. A delta is the way from
what was *sent* to what the version is, so what a codec loses goes along with the next one:
error feedback, with the remainder at the sender (Seide et al. 2014, §3.1; Karimireddy et al.
2019, algorithm 1). The remainder needs no place of its own: it is the version without the sum.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Snapshot
from stoilo.learn.core.states import State, parse, render, select
from stoilo.learn.core.tensors import Array, Tensors, add, forms_of
from stoilo.learn.driver.codecs import (
    Compressed,
    Half,
    PerLayer,
    PowerSGD,
    Quantised,
    Raw,
    Remainder,
    Transport,
)
from stoilo.learn.driver.transport import TransportName, as_transport
from stoilo.learn.kernels import encoding

MOST_IN_CHAIN = 32  # a task names at most 64 blobs
_PART = "versions"  # of a run's state


@dataclass(frozen=True, slots=True)
class Delta:
    """A whole version now and then, and between them what has changed.

    Attributes:
        codec: of deltas, or one for each layer. Not `PowerSGD`: products of matrices differ
            between processors, and all hosts must have the very same bits.
        base: of whole versions: "raw", "compressed", a half, or one for each layer.
        every: so many versions share a whole one. A host that holds none of them fetches
            all of them so far, and each task adds them up.
    """

    codec: Transport = field(default_factory=Quantised)
    base: Transport = field(default_factory=Raw)
    every: int = 4

    def __post_init__(self) -> None:
        """Refuse bases that are none, deltas that are not exact, chains without end."""
        is_base = _are_of(self.base, (Raw, Compressed, Half))
        if _holds_product(self.codec) or not is_base:
            raise UsageError("STO-T040", f"versions cannot travel as {self}")
        if type(self.every) is not int or not 1 <= self.every <= MOST_IN_CHAIN:
            raise UsageError(
                "STO-T040",
                f"{self.every} versions cannot share a whole one",
                hint=f"a whole number from 1 to {MOST_IN_CHAIN}; 1: each travels whole",
            )

    @property
    def share(self) -> float:
        """About how many bytes a host fetches for one byte of float32, to estimate times."""
        rest = self.codec.share * (self.every - 1)
        return (self.base.share + rest) / self.every


def _are_of(codec: Transport, kinds: tuple[type, ...]) -> bool:
    if isinstance(codec, PerLayer):
        return all(_are_of(one, kinds) for one in codec.every)
    return isinstance(codec, kinds)


def _holds_product(codec: Transport) -> bool:
    if isinstance(codec, PerLayer):
        return any(map(_holds_product, codec.every))
    if isinstance(codec, Remainder):
        return _holds_product(codec.first) or _holds_product(codec.rest)
    return isinstance(codec, PowerSGD)


Downlink: TypeAlias = Delta | Transport | TransportName


def as_downlink(wanted: Downlink) -> Delta | None:
    """Return how versions travel; None for whole and as they are.

    Raises:
        UsageError: ``STO-T040`` for what no version can travel as.
    """
    if not isinstance(wanted, Delta):
        wanted = Delta(base=as_transport(wanted), every=1)
    return None if wanted.every == 1 and wanted.base == Raw() else wanted


_Forms: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Sent:
    """One blob: a version whole, or its delta to the one before it."""

    version: int
    told: dict[str, Any] | None  # codec and constants; None for arrays as they are
    frames: dict[str, Array]


@dataclass(frozen=True, slots=True)
class _Saved:
    chains: list[list[Sent]]
    forms: _Forms


class Versions:
    """The versions that travel, as they were sent; part of a run's checkpoint."""

    def __init__(self, how: Delta | None) -> None:
        self._how = how
        self._chains: list[list[Sent]] = []  # each a whole version and deltas to it
        self._forms: _Forms = {}
        self._seen: dict[int, Tensors] = {}  # what volunteers see, by version

    def send(self, order: Order) -> Order:
        """Return the order with its version as volunteers will see it.

        Evaluations see the version itself; a part's own weights, and what the project has
        already, travel as they are.
        """
        snapshot, is_there = order.snapshot, order.is_own or order.snapshot.published
        if self._how is None or order.kernel == "evaluate" or is_there:
            return order
        if self._chain_to(snapshot.version) is None:
            self._append(self._how, snapshot)
        parameters = self._read(snapshot.version)
        return replace(order, snapshot=replace(snapshot, parameters=parameters))

    def name(self, order: Order) -> tuple[list[Sent], dict[str, object]]:
        """Return the blobs that an order needs, in order, and what they mean; none: raw."""
        chain = self._chain_to(order.snapshot.version)
        if chain is None or order.kernel == "evaluate" or order.is_own:
            return [], {}
        forms = {name: [kind, [*shape]] for name, (kind, shape) in self._forms.items()}
        return chain, {"told": [sent.told for sent in chain], "forms": forms}

    @property
    def named(self) -> frozenset[int]:
        """The versions whose blobs are still needed."""
        return frozenset(sent.version for chain in self._chains for sent in chain)

    def forget(self, wanted: Collection[int]) -> None:
        """Let go of all but the newest chain and those of the `wanted` versions."""
        kept = [c for c in self._chains[:-1] if any(s.version in wanted for s in c)]
        self._chains = [*kept, *self._chains[-1:]]
        newest = {chain[-1].version for chain in self._chains[-1:]}
        for version in self._seen.keys() - newest - set(wanted):
            del self._seen[version]

    def _append(self, how: Delta, snapshot: Snapshot) -> None:
        """Send a version that was not sent yet."""
        version, parameters = snapshot.version, snapshot.parameters
        last = self._chains[-1] if self._chains else []
        with np.errstate(over="ignore", invalid="ignore"):
            if last and version < last[-1].version:  # no host will go on from it
                self._chains.insert(0, [_encode(how.base, version, parameters)])
            elif last and len(last) < how.every:
                way = add(parameters, self._reference(last[-1].version), -1.0)
                last.append(_encode(how.codec, version, way))
            else:
                self._forms = _plain_forms(parameters)
                self._chains.append([_encode(how.base, version, parameters)])
            try:
                self._read(version)
            except ValueError:  # no numbers: as they are, so that the method sees it
                last.pop()
                self._chains.append([Sent(version, None, dict(parameters))])

    def _reference(self, version: int) -> Tensors:
        """Return what the next delta starts from: what was sent, not what was meant."""
        return self._read(version)

    def _chain_to(self, version: int) -> list[Sent] | None:
        for chain in self._chains:
            for number, sent in enumerate(chain):
                if sent.version == version:
                    return chain[: number + 1]
        return None

    def _read(self, version: int) -> Tensors:
        """Return a version as volunteers see it, by the very steps of theirs."""
        if version not in self._seen:
            chain = self._chain_to(version) or []
            before = chain[-2].version if len(chain) > 1 else None
            if before in self._seen:  # the same sums, without those before
                start, rest = Sent(0, None, dict(self._seen[before])), chain[-1:]
            else:
                start, rest = chain[0], chain[1:]
            self._seen[version] = _arrive([start, *rest], self._forms)
        return self._seen[version]

    def save(self) -> dict[str, State]:
        """Return the blobs that tasks may still name, as a part of the run's state."""
        saved = _Saved(self._chains, self._forms)
        return {} if self._how is None else {_PART: render(saved)}

    def load(self, state: State) -> None:
        """Go on from a run's state; raises ``STO-T012`` when it is of something else."""
        if _PART not in state.plain:
            return
        saved = parse(select(state, _PART), _Saved)
        self._chains, self._forms, self._seen = saved.chains, saved.forms, {}


def name_blobs(chain: list[Sent]) -> list[tuple[str, Sent]]:
    """Return each blob with the name of the kernel's argument that it is."""
    return [(f"delta{n}" if n else "parameters", sent) for n, sent in enumerate(chain)]


def _plain_forms(tensors: Tensors) -> _Forms:
    return {name: (f.dtype, f.shape) for name, f in forms_of(tensors).items()}


def _arrive(chain: list[Sent], forms: _Forms) -> Tensors:
    means = {"told": [sent.told for sent in chain], "forms": forms}
    arrive: Any = encoding.arrive  # untyped: it travels as source
    given = {name: sent.frames for name, sent in name_blobs(chain)}
    found: Tensors = arrive({**given, "downlink": means})["parameters"]
    return found


def _encode(codec: Transport, version: int, tensors: Tensors) -> Sent:
    """Return arrays as they travel."""
    told = codec.ask(Order(f"v{version}", "", Snapshot(version, tensors), 0, 0))
    if told is None:
        return Sent(version, None, dict(tensors))
    pack: Any = encoding.pack
    frames = pack({"settings": {"transport": told}}, tensors)
    kept = {name: value for name, value in told.items() if name != "seed"}
    return Sent(version, kept, frames)
