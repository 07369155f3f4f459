"""What a volunteer's answer must be before a single number of it is used (hostile input).

Known version, exact names, types and shapes, finite entries, the ordered number of samples,
a loss above its least value. Only then it is a `Reply`. The rules themselves are in
`stoilo.learn.kernels.checks`, because a server's validator asks the same. What is finite and
far too large is shortened (`Guard`), and hosts whose claims are wrong are reported
(`Disputes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from stoilo.client.results import UserError
from stoilo.core.errors import StoiloError
from stoilo.learn.backends import Backend
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import Model
from stoilo.learn.core.orders import Order, Reply, refuse_answer
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Form, Tensors, add, forms_of, safe_norm
from stoilo.learn.driver.probing import Look, count_steps, find_lie, look_at, runs_here
from stoilo.learn.driver.transport import is_near_in_copies
from stoilo.learn.kernels import checks
from stoilo.learn.methods import robust
from stoilo.learn.methods.buffers import BufferBounds, keep_buffers
from stoilo.learn.methods.rules import Clip


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the answer to one order must look like."""

    version: int  # of the snapshot that the order named
    samples: int | None  # how many samples it covers; None: it says how many
    tensors: Mapping[str, Form]  # forms of the arrays that the kernel returns
    buffers: Mapping[str, Form]  # forms of the model's buffers
    # Least sum of losses that can be, where the loss has a lower bound of 0: 0; else
    # minus infinity
    least_loss: float = -math.inf
    # Names of arrays that may be absent: parameters that have no gradient
    may_lack: frozenset[str] = frozenset()

    def plain(self) -> dict[str, object]:
        """Return it as what source can hold: numbers, texts, tuples, dicts."""
        return {
            "version": self.version,
            "samples": self.samples,
            "least_loss": self.least_loss if math.isfinite(self.least_loss) else None,
            "tensors": _plain_forms(self.tensors),
            "buffers": _plain_forms(self.buffers),
            "lacking": tuple(sorted(self.may_lack)),
        }

    def validator(
        # How its arrays are encoded; None where they are not
        self,
        told: Mapping[str, Plain] | None = None,
    ) -> Callable[[object], bool]:
        """Return the check for a server: travels as source, runs in its jail.

        It leaves version and samples to the driver: one source for all orders of a run
        is judged by the gate once.
        """
        least = 0.0 if self.least_loss == 0.0 else None
        # The same source for all orders of a run: the gate judges it once.
        alike = {"version": None, "samples": None, "least_loss": least}
        make: Callable[..., Callable[[object], bool]] = checks.make_check
        return make({**self.plain(), **alike}, told)

    def comparator(
        self, told: Mapping[str, Plain] | None = None
    ) -> Callable[[object, object], bool] | None:
        """Return what says, at a server, whether two answers are alike.

        None, which asks for equality, where a codec makes more of a last bit.
        """
        if not is_near_in_copies(told):
            return None
        make: Callable[..., Callable[[object, object], bool]] = checks.make_comparator
        return (
            checks.are_alike if told is None else make(_plain_forms(self.tensors), told)
        )


def _plain_forms(forms: Mapping[str, Form]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (form.dtype, form.shape) for name, form in forms.items()}


def check_reply(raw: object, expected: Expectation) -> Reply:
    """Return the reply that `raw` (decoded, otherwise unchecked) holds.

    What may be absent, and is, stays absent; the other arrays come in the model's order.

    Raises:
        TrustError: ``STO-T010`` naming the first thing that is not as expected.
    """
    find_fault: Callable[[object, dict[str, object]], str] = checks.find_fault
    fault = find_fault(raw, expected.plain())
    if fault:
        raise refuse_answer(fault)
    assert isinstance(raw, dict)  # noqa: S101 - it has no fault
    tensors, buffers = raw["tensors"], raw["buffers"]
    return Reply(
        version=expected.version,
        samples=raw["samples"],
        loss_sum=raw["loss_sum"],
        tensors={name: tensors[name] for name in expected.tensors if name in tensors},
        buffers={name: buffers[name] for name in expected.buffers},
        correct=raw["correct"],
    )


FAR = 10.0  # answers so many times as large as what may count are no honest accident
_TINY = 1e-300
_MOST_BOUNDS = 1000  # works with copies whose bound is known
LOGGER = logging.getLogger(__name__)


class Guard:
    """Checks and bounds the answers of one run.

    Attributes:
        memory: the norms of answers so far.
        shortened: how many answers were cut.
        doubt: why the host of the last answer is in doubt though it counts; empty if not.
        reach: how many times the usual the last answer was, before it was cut.
    """

    def __init__(
        self,
        model: Model,  # whose answers they are
        clip: Clip | None,  # bound on the influence of one answer; None for none
        *,
        probe: bool = True,  # let the bound hold from the first answer on
        least_loss: float = -np.inf,  # least loss of one sample
        memory: robust.Memory | None = None,  # what an earlier run learned of norms
        home: HomeChecks
        | None = None,  # which answers are computed again; None for none
    ) -> None:
        self.memory = memory or robust.Memory()
        self.shortened = 0
        self.doubt = ""
        self.reach = 1.0
        self._model, self._clip, self._probe = model, clip, probe
        self._least_loss = least_loss
        self._forms = forms_of(model.first().buffers)
        self._looks: dict[str, Look] = {}
        self._buffers, self._home = BufferBounds(), home
        self._bounds: dict[str, robust.Memory] = {}  # work with copies → its bound

    async def look(self, order: Order, part: Part) -> None:
        """Compute a few samples here, once for each kernel of the run."""
        if order.kernel in self._looks:
            return
        found = await asyncio.to_thread(look_at, self._model, order, part)
        self._looks[order.kernel] = found
        if self._clip is None or not self._probe:
            return
        self._buffers.begin(found.moves, self._clip.least)
        if found.norm is not None and not self.memory.norms:
            count = self._clip.least
            self.memory = self.memory.with_norms(
                [found.norm] * count, [found.samples] * count
            )

    def expect(self, order: Order) -> Expectation:
        """Return what the answer to `order` must look like."""
        frozen = order.settings.get("frozen_buffers") is True
        least = self._least_loss
        # An evaluation gives numbers only
        usual = {} if order.kernel == "evaluate" else forms_of(order.arrays)
        return Expectation(
            version=order.snapshot.version,
            samples=None if order.is_partly else order.samples,
            tensors=usual if order.forms is None else order.forms,
            buffers={} if frozen else self._forms,
            least_loss=least * order.samples if np.isfinite(least) else -np.inf,
            may_lack=self._looks.get(order.kernel, Look()).lacking,
        )

    def admit(self, order: Order, raw: object) -> Reply:
        """Return the reply that a decoded answer holds, its influence bounded.

        Raises:
            TrustError: ``STO-T010`` when it is none, or too large for any bound: entries
                that are finite, while their norm, or the way to them, is not.
        """
        reply = keep_buffers(order, check_reply(raw, self.expect(order)))
        self.doubt, self.reach = "", 1.0
        cut = self._bound_buffers(order, self._bound_tensors(order, reply))
        if cut is not reply:
            self._tell(order)
        return cut

    async def judge(self, order: Order, part: Part, raw: object) -> Reply:
        """Return what `admit` does, once computed again here if it is the answer's turn.

        Raises:
            TrustError: ``STO-T010``, also when it differs from what is computed here.
        """
        memory, reply = self.memory, self.admit(order, raw)
        if self._home is None:
            return reply
        try:
            whole = check_reply(raw, self.expect(order))
            await self._home.check(order, part, whole, self.reach)
        except BaseException:
            # What a liar sends does not say what is usual.
            self.memory = memory
            raise
        return reply

    def _bound_buffers(self, order: Order, reply: Reply) -> Reply:
        if self._clip is None or not reply.buffers:
            return reply
        steps = max(1, count_steps(order))
        before = order.snapshot.buffers
        return self._buffers.bound(before, reply, self._clip, steps)

    def _bound_tensors(self, order: Order, reply: Reply) -> Reply:
        """Bound the gradient, or the way gone by steps."""
        if not reply.tensors:
            return reply
        base: Tensors = order.snapshot.parameters
        is_place = order.gives_parameters
        with np.errstate(over="ignore", invalid="ignore"):  # the next check sees it
            moved = add(reply.tensors, base, -1.0) if is_place else reply.tensors
        way, size = replace(reply, tensors=moved), safe_norm(moved)
        if not robust.is_sound(way, size):
            raise refuse_answer("its norm is not finite")
        if self._clip is None:
            return reply
        steps = count_steps(order)
        memory = self._memory_for(order)
        self.reach = robust.compare(way, memory, self._clip, steps=steps, size=size)
        cut, after = robust.clip(way, memory, self._clip, steps=steps, size=size)
        if memory is self.memory:
            self.memory = after
        if cut.tensors is moved:
            return reply
        times = size / max(safe_norm(cut.tensors), _TINY)
        # Cut and counted all the same, but its host is named to the place.
        if times > FAR:
            self.doubt = f"{times:.2g} times as large as the largest that counts"
        tensors: Tensors = add(base, cut.tensors) if is_place else cut.tensors
        return replace(reply, tensors=tensors)

    def _memory_for(self, order: Order) -> robust.Memory:
        """Return what bounds an answer: for compared copies of one work, all the same."""
        if order.work == order.key:
            return self.memory
        # Else equal answers would be cut to lengths that differ; the first is remembered.
        found = self._bounds.setdefault(order.work, self.memory)
        if len(self._bounds) > _MOST_BOUNDS:
            del self._bounds[next(iter(self._bounds))]
        return found

    def _tell(self, order: Order) -> None:
        # Only the first cut of a run is told, because it is silent otherwise.
        self.shortened += 1
        if self.shortened == 1:
            LOGGER.warning(
                "the answer to %s was much larger than usual and was shortened: a host"
                " that cheats, or data parts that differ (then train with clip=None)",
                order.key,
            )


DIRECTIONS = 3  # of proven lies, the newest, that later answers are compared with
ALIKE = 0.5  # the cosine to one of them from which on an answer is computed again
PATIENT_S = 10.0  # a check that takes longer is made as much more rarely
_DRAW = secrets.SystemRandom().random


class HomeChecks:
    """Answers computed again here, before they count: at random, and what looks like a push.

    The chance grows with the square of an answer's length: whoever pushes hard is found
    soon. Whoever was found has shown where it pushes to, and what goes there again is
    computed again each time, whoever sends it: a trainer knows no hosts. Nothing is
    refused that was not computed otherwise here, so honest parts, however much they differ,
    count in full, and an honest run has the bits that it has without checks.

    Attributes:
        checked: how many answers were computed again.
        found: how many of them were wrong.
    """

    def __init__(
        self,
        model: Model,
        share: float,  # of usual answers that is computed again; 0 for none
        *,
        # From 0 to 1; hosts must not foresee it
        draw: Callable[[], float] = _DRAW,
        clock: Callable[[], float] = time.perf_counter,  # s
    ) -> None:
        self.checked = self.found = 0
        self._model, self._share, self._draw, self._clock = model, share, draw, clock
        self._ways: list[Tensors] = []  # of proven lies, each of length 1
        self._sample_s = 0.0  # of the last check

    async def check(self, order: Order, part: Part, reply: Reply, reach: float) -> None:
        """Compute an accepted answer again, if it is its turn; `reach` times the usual long.

        Raises:
            TrustError: ``STO-T010`` when it differs from what is computed here.
        """
        if not self._share:
            return
        way = self._recognise(order, reply)
        takes = self._sample_s * reply.samples
        chance = 1.0 if way >= 0 else self._share * max(1.0, reach) ** 2
        if self._draw() >= chance * min(1.0, PATIENT_S / max(takes, PATIENT_S)):
            return
        began = self._clock()
        lie = await asyncio.to_thread(find_lie, self._model, order, part, reply)
        self._sample_s = (self._clock() - began) / reply.samples
        self.checked += 1
        if lie is None:
            # It accused somebody honest: it says nothing any more.
            self._ways[max(way, 0) : way + 1] = []
            return
        self.found += 1
        if lie.way and way < 0:
            self._ways = [*self._ways, lie.way][-DIRECTIONS:]
        raise refuse_answer(f"computed again, {lie.what}")

    def _recognise(self, order: Order, reply: Reply) -> int:
        """Return which proven lie an answer goes along with; -1 for none."""
        if not self._ways or not reply.tensors:
            return -1
        base = order.snapshot.parameters
        moved = (
            add(reply.tensors, base, -1.0) if order.gives_parameters else reply.tensors
        )
        size = max(safe_norm(moved), _TINY)
        along = [
            sum(float(np.vdot(moved[n], a)) for n, a in way.items() if n in moved)
            / size
            for way in self._ways
        ]
        return next((i for i, cosine in enumerate(along) if cosine >= ALIKE), -1)


class Disputes:
    """Claims that a function fails, and answers that the place is still to hear of."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sound: set[str] = set()  # keys whose orders run here without an error
        self._reports: list[tuple[str, str]] = []

    async def check(self, order: Order, part: Part, error: Exception) -> None:
        """Compute an order here, once, of which a volunteer says that the function fails.

        Raises:
            TrustError: ``STO-T010`` when it does not fail here.
        """
        if not isinstance(error, UserError):
            return
        # Once an order: a liar must not make the trainer compute again and again.
        if order.key not in self._sound:
            if not await asyncio.to_thread(runs_here, self._model, order, part):
                return
            self._sound.add(order.key)
        raise refuse_answer(f"it says {error}, which does not happen here")

    def forget(self, key: str) -> None:
        """Note that a piece of work is done."""
        self._sound.discard(key)

    def note(self, job_id: str, reason: str) -> None:
        """Note a wrong answer, to be reported once the run is saved."""
        self._reports.append((job_id, reason))

    async def report(self, backend: Backend) -> None:
        """Tell the place whose answers were wrong; it may be away just now."""
        while self._reports:
            job_id, reason = self._reports.pop(0)
            with contextlib.suppress(StoiloError):
                await backend.refuse(job_id, reason)
