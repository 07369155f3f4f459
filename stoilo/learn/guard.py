"""The guard before a method: what an answer must be like, and how much it may change.

Forms are refused (`acceptance`); numbers that are finite and far too large are shortened
(`robust`), gradients and the changes of buffers each by what answers were like so far, and
before the first answer by what a few samples computed here are like (`probing`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import numpy as np

from stoilo.learn import robust
from stoilo.learn.acceptance import (
    Expectation,
    check_reply,
    refuse_answer,
    tensors_expected,
)
from stoilo.learn.buffers import BufferBounds, keep_buffers
from stoilo.learn.data import Part
from stoilo.learn.models import Model
from stoilo.learn.probing import Look, look_at
from stoilo.learn.tensors import Tensors, add, forms_of
from stoilo.learn.work import Order, Reply

__all__ = ["Guard"]

FAR = 10.0
"""Answers so many times as large as what may count are no honest accident."""
_TINY = 1e-300
LOGGER = logging.getLogger(__name__)


def count_steps(order: Order) -> int:
    """Return at how many steps along a ray the order asks for loss and slope."""
    steps = order.settings.get("ray")
    return len(steps) if order.kernel == "ray" and isinstance(steps, list) else 0


class Guard:
    """Checks and bounds the answers of one run.

    Args:
        model: whose answers they are.
        clip: bound on the influence of one answer; None for none.
        probe: let the bound hold from the first answer on.
        least_loss: least loss of one sample.
        memory: what an earlier run learned of norms.

    Attributes:
        memory: the norms of answers so far.
        shortened: how many answers were cut.
        doubt: why the host of the last answer is in doubt though it counts; empty if not.
    """

    def __init__(
        self,
        model: Model,
        clip: robust.Clip | None,
        *,
        probe: bool = True,
        least_loss: float = -np.inf,
        memory: robust.Memory | None = None,
    ) -> None:
        self.memory = memory or robust.Memory()
        self.shortened = 0
        self.doubt = ""
        self._model, self._clip, self._probe = model, clip, probe
        self._least_loss = least_loss
        self._forms = forms_of(model.first().buffers)
        self._looks: dict[str, Look] = {}
        self._buffers = BufferBounds()

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
                [found.norm] * count, [order.samples] * count
            )

    def expect(self, order: Order) -> Expectation:
        """Return what the answer to `order` must look like."""
        frozen = order.settings.get("frozen_buffers") is True
        least = self._least_loss
        return Expectation(
            version=order.snapshot.version,
            samples=order.samples,
            tensors=tensors_expected(order.kernel, order.snapshot.parameters),
            buffers={} if frozen else self._forms,
            least_loss=least * order.samples if np.isfinite(least) else -np.inf,
            may_lack=self._looks.get(order.kernel, Look()).lacking,
            ray=count_steps(order),
        )

    def admit(self, order: Order, raw: object) -> Reply:
        """Return the reply that a decoded answer holds, its influence bounded.

        Raises:
            TrustError: ``STO-T010`` when it is none, or too large for any bound: entries
                that are finite, while their norm, or the way to them, is not.
        """
        reply = keep_buffers(order, check_reply(raw, self.expect(order)))
        self.doubt = ""
        cut = self._bound_buffers(order, self._bound_tensors(order, reply))
        if cut is not reply:
            self._tell(order)
        return cut

    def _bound_buffers(self, order: Order, reply: Reply) -> Reply:
        if self._clip is None or not reply.buffers:
            return reply
        return self._buffers.bound(order.snapshot.buffers, reply, self._clip)

    def _bound_tensors(self, order: Order, reply: Reply) -> Reply:
        """Bound the gradient, or the way gone by steps."""
        if not reply.tensors:
            return reply
        base: Tensors = order.snapshot.parameters
        is_place = order.settings.get("give") == "parameters"
        with np.errstate(over="ignore", invalid="ignore"):  # the next check sees it
            moved = add(reply.tensors, base, -1.0) if is_place else reply.tensors
        if not robust.is_sound(replace(reply, tensors=moved)):
            raise refuse_answer("its norm is not finite")
        if self._clip is None:
            return reply
        cut, self.memory = robust.clip(
            replace(reply, tensors=moved),
            self.memory,
            self._clip,
            is_sum=order.kernel == "gradient",
        )
        if cut.tensors is moved:
            return reply
        times = robust.safe_norm(moved) / max(robust.safe_norm(cut.tensors), _TINY)
        if times > FAR:
            self.doubt = f"{times:.2g} times as large as the largest that counts"
        tensors: Tensors = add(base, cut.tensors) if is_place else cut.tensors
        return replace(reply, tensors=tensors)

    def _tell(self, order: Order) -> None:
        """Count a cut; the first one of a run is told, because it is silent otherwise."""
        self.shortened += 1
        if self.shortened == 1:
            LOGGER.warning(
                "the answer to %s was much larger than usual and was shortened: a host"
                " that cheats, or data parts that differ (then train with clip=None)",
                order.key,
            )
