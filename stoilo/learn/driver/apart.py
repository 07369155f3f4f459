"""A training whose process holds no vector: points and answers go past it, through shards.

plant(places, model, part)      # whoever has the model; once
SandblasterSettings(places=places, planted=…)   # the coordinator's process
harvest(places, planted)        # whoever wants the model, when that process has ended

DistBelief's coordinator (Dean et al. 2012, §4.2): it sends the shards scalar instructions.
What the driver sees of an answer is its length, so that the bound on answers holds here too:
a cut is a factor. Nothing can be computed again without parameters, nor a claimed error be
tried out; ask a server for two copies that agree.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stoilo.core.errors import StoiloError, UsageError
from stoilo.learn.backends import Backend, Handle, Job, JobEnd
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import Kernel, Model
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.tensors import Array, Form, flatten, unflatten
from stoilo.learn.driver.acceptance import Expectation
from stoilo.learn.driver.probing import Look, look_at
from stoilo.learn.methods.base import Piece
from stoilo.learn.methods.sandblaster import name_answer
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.vectors import (
    NORM,
    Planted,
    Vectors,
    count_entries,
    forms_of_arrays,
)


def plant(
    places: Sequence[ShardPlace],  # shards that know the project (`--project`)
    model: Model,
    part: Part | None = None,  # of the data: the bound on answers then holds at once
    *,
    space: str = "vectors",  # as the settings' of the training
) -> Planted:
    """Put a model's first version at shards, for a coordinator that never has it.

    Raises:
        UsageError: ``STO-T040``, the model has buffers, which no shard keeps.
    """
    first = model.first()
    if first.buffers:
        raise UsageError("STO-T040", "a model with buffers cannot be planted")
    look = Look()
    if part is not None:
        look = look_at(model, Piece(0, len(part)).order("", first, 0), part)
    start = flatten(first.parameters)
    with _opened(places, start.size, space) as vectors:
        for name in ("x", "trial"):
            vectors.put(name, start)
        vectors.save()
        vectors.keep()
    forms = forms_of_arrays(first.parameters)
    return Planted(forms, look.norm, look.samples, sorted(look.lacking))


def harvest(
    places: Sequence[ShardPlace], planted: Planted, *, space: str = "vectors"
) -> dict[str, Array]:
    """Return the parameters that the shards saved last, once the training has ended."""
    like = {n: np.zeros(s, kind) for n, (kind, s) in planted.forms.items()}
    with _opened(places, count_entries(planted.forms), space) as vectors:
        vectors.begin_newest()
        return unflatten(vectors.gather("trial"), like)


@contextlib.contextmanager
def _opened(places: Sequence[ShardPlace], size: int, space: str) -> Iterator[Vectors]:
    server = ParameterServer.connect(places)
    try:
        yield server.vectors(size, space)
    finally:
        server.close()


@dataclass(frozen=True)
class ApartModel:
    """A model whose parameters are elsewhere; `inner` gives its kernels, and no numbers."""

    inner: Model
    planted: Planted

    @property
    def looks(self) -> Mapping[str, Look]:
        """What answers computed elsewhere were like: nothing can be computed here."""
        return {"gradient": Look(self.planted.norm, self.planted.samples)}

    @property
    def level(self) -> str:
        """The policy level of its kernels."""
        return self.inner.level

    def first(self) -> Snapshot:
        """Return version 0: a length in the parameters' place."""
        return Snapshot(0, {NORM: np.zeros(1)})

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of that name."""
        return self.inner.kernel(name)

    def constants(self) -> Mapping[str, object]:
        """Return the inner model's."""
        return self.inner.constants()


class Apart(Backend):
    """A backend of which only numbers come: the answers' arrays are at the shards."""

    def __init__(self, inner: Backend, vectors: Vectors, planted: Planted) -> None:
        """Stand before `inner`, a server's."""
        self._inner, self._vectors, self._planted = inner, vectors, planted
        self._out: dict[str, Job] = {}

    async def put(self, value: object) -> Handle:
        """Upload a value."""
        return await self._inner.put(value)

    async def submit(self, job: Job) -> str:
        """Create the task of an order of `Sandblaster`'s."""
        (found,) = await self.submit_many([job])
        if isinstance(found, StoiloError):
            raise found
        return found

    async def submit_many(self, jobs: Sequence[Job]) -> list[str | StoiloError]:
        """Create tasks whose answers a server checks as shards will.

        Raises:
            UsageError: ``STO-T040``, the backend behind has no server.
        """
        self._inner.leave_values()
        forms = {name: Form(*form) for name, form in self._planted.forms.items()}
        lacking = frozenset(self._planted.lacking)
        check = Expectation(0, 0, forms, {}, may_lack=lacking).validator()
        found = await self._inner.submit_many([replace(j, check=check) for j in jobs])
        for job, one in zip(jobs, found, strict=True):
            if isinstance(one, str):
                self._out[one] = job
        return found

    async def next(self, wait_s: float | None = None) -> JobEnd | None:
        """Return the next ending; of an answer, numbers and its length."""
        ending = await self._inner.next(wait_s)
        if ending is None or ending.error is not None:
            return ending
        value = await asyncio.to_thread(self._take, ending.job_id)
        return replace(ending, value=value)

    def _take(self, job_id: str) -> object:
        job = self._out.pop(job_id)
        name, about = name_answer(job.label.rpartition(" ")[2]), self._planted
        told = {"version": job.arguments["version"], "samples": job.samples}
        further = {"least_loss": None, "lacking": about.lacking}
        found = self._vectors.take(name, job_id, about.forms, {**told, **further})
        if found.fault:
            return found.fault  # no answer: it is refused like any other
        return {
            **told,
            "loss_sum": found.loss_sum,
            "tensors": {NORM: np.array([self._vectors.norm(name)])},
            "buffers": {},
            "correct": found.correct,
        }

    async def cancel(self, job_id: str) -> None:
        """Stop a job."""
        self._out.pop(job_id, None)
        await self._inner.cancel(job_id)

    async def refuse(self, job_id: str, reason: str) -> None:
        """Say that an answer cannot be used."""
        await self._inner.refuse(job_id, reason)

    async def close(self) -> None:
        """Close the backend behind."""
        await self._inner.close()
