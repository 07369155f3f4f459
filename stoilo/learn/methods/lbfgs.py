"""L-BFGS whose coordinator holds scalars and names only (DistBelief's Sandblaster).

Vectors of the shards: ``x`` the accepted point, ``g`` its gradient, ``d`` the direction,
``trial`` a trial point, ``slope`` the gradient there, ``s0 y0 …`` the history.

One thing is ours. A loss summed in single precision has *noise*: a step that changes it by
less is judged by slopes alone (Hager, Zhang 2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from stoilo.learn.core.states import Stateful
from stoilo.learn.store.vectors import Vectors

_WORST = 2  # line searches that fail in a row end the run
_QUIET = 5  # steps within the noise, none with a smaller gradient, end it as well


@dataclass(frozen=True, slots=True)
class Rules:
    """When a step is good, and when to stop.

    Attributes:
        history: pairs (s, y) that are kept.
        tolerance: stop when no entry of the gradient is larger.
        iterations: most accepted steps.
        decrease: c1 of the Wolfe conditions.
        curvature: c2 of the Wolfe conditions (weak form).
        trials: most trial points of one line search.
        skip: a pair is kept only with ``y·s > skip * y·y``.
        noise: of the loss, as a share of it.
    """

    history: int = 10
    tolerance: float = 1e-6
    iterations: int = 200
    decrease: float = 1e-4
    curvature: float = 0.9
    trials: int = 30
    skip: float = 1e-10
    noise: float = 0.0


STANDARD = Rules()


@dataclass(slots=True)
class LineSearch:
    """A search along one direction by bracketing and halving: weak Wolfe conditions."""

    value: float  # of the loss at the beginning
    slope: float  # along the direction there, negative
    step: float  # the present trial
    low: float = 0.0  # a step that is too short, 0 at first
    high: float = math.inf  # a step that is too long, infinite at first
    trials: int = 0  # made so far

    def judge(self, value: float, slope: float, rules: Rules) -> bool:
        """Return whether the trial is good; otherwise move to the next one."""
        self.trials += 1
        if self._bracket(value, slope, rules):
            return True
        far = math.isinf(self.high)
        self.step = 2.0 * self.step if far else 0.5 * (self.low + self.high)
        return False

    def is_blurred(self, rules: Rules) -> bool:
        """Return whether what a step could still change is below the loss's noise."""
        return self.step * abs(self.slope) <= rules.noise * abs(self.value)

    def _bracket(self, value: float, slope: float, rules: Rules) -> bool:
        """Return whether the trial is good (weak Wolfe); otherwise note on which side."""
        bound = self.value + rules.decrease * self.step * self.slope
        level = self.value + rules.noise * abs(self.value)
        flat = value <= level and slope <= (2.0 * rules.decrease - 1.0) * self.slope
        is_number = math.isfinite(value) and math.isfinite(slope)
        if not (is_number and (value <= bound or (rules.noise and flat))):
            self.high = min(self.high, self.step)
        elif slope < rules.curvature * self.slope:
            self.low = max(self.low, self.step)
        else:
            return True
        return False


@dataclass(slots=True)
class Coordinator(Stateful):
    """The optimiser's scalars; every vector is named and lies in the shards."""

    kept = Stateful.kept | {
        "pairs": list[int],
        "made": int,
        "iterations": int,
        "value": float,
        "failures": int,
        "search": LineSearch | None,
        "converged": bool,
        "least": float,
        "quiet": int,
    }

    rules: Rules  # constants
    # Numbers of the kept (s, y), oldest first
    pairs: list[int] = field(default_factory=list)
    made: int = 0  # how many pairs were ever kept: names the next one
    iterations: int = 0  # accepted steps
    value: float = math.nan  # loss at the accepted point; NaN before the first pass
    failures: int = 0  # line searches that failed in a row
    search: LineSearch | None = None  # the one in progress
    converged: bool = False  # whether the tolerance is reached
    least: float = math.inf  # smallest gradient (its largest entry) so far
    quiet: int = 0  # steps in a row within the noise that found no smaller one

    @property
    def stopped(self) -> bool:
        """Whether no further pass is wanted."""
        ended = self.iterations >= self.rules.iterations or self.failures >= _WORST
        return self.converged or ended or self.quiet >= _QUIET

    def judge(self, vectors: Vectors, value: float) -> bool:
        """Take the loss at ``trial`` (gradient in ``slope``); return whether it is accepted.

        Afterwards ``trial`` is the next point to evaluate, or the accepted one when stopped.
        """
        if self.search is None:  # the first pass of all
            self.value = value
            vectors.assign("g", 1.0, "slope")
            self._turn(vectors)
            return False
        along = vectors.dot("slope", "d")
        if self.search.judge(value, along, self.rules):
            self._accept(vectors, value)
            return True
        self._search_on(vectors, self.search)
        return False

    def _search_on(self, vectors: Vectors, search: LineSearch) -> None:
        # Below the noise a further trial would compare rounding errors.
        if search.trials >= self.rules.trials or search.is_blurred(self.rules):
            self.failures += 1
            self._forget(vectors)
            self._turn(vectors)
            return
        self._try(vectors, search.step)

    def _accept(self, vectors: Vectors, value: float) -> None:
        self._listen(vectors, value)
        self.value, self.iterations, self.failures = value, self.iterations + 1, 0
        self._remember(vectors)
        vectors.assign("x", 1.0, "trial")
        vectors.assign("g", 1.0, "slope")
        self._turn(vectors)

    def _listen(self, vectors: Vectors, value: float) -> None:
        """Count steps that move the loss within its noise and make no gradient smaller."""
        least = min(self.least, vectors.largest("slope"))
        heard = abs(value - self.value) > self.rules.noise * abs(value)
        self.quiet = 0 if heard or least < self.least else self.quiet + 1
        self.least = least

    def _remember(self, vectors: Vectors) -> None:
        """Keep ``s = trial - x`` and ``y = slope - g``, if the curvature is positive.

        `s` is the way that was really gone: a trial in single precision is rounded.
        """
        s, y = f"s{self.made}", f"y{self.made}"
        vectors.assign(s, 1.0, "trial")
        vectors.axpy(s, -1.0, "x")
        vectors.assign(y, 1.0, "slope")
        vectors.axpy(y, -1.0, "g")
        # A pair without curvature would make the next direction lead uphill.
        if not vectors.dot(y, s) > self.rules.skip * vectors.dot(y, y):
            vectors.drop([s, y])
            return
        self.pairs.append(self.made)
        self.made += 1
        while len(self.pairs) > self.rules.history:
            oldest = self.pairs.pop(0)
            vectors.drop([f"s{oldest}", f"y{oldest}"])

    def _forget(self, vectors: Vectors) -> None:
        vectors.drop([f"{kind}{pair}" for kind in "sy" for pair in self.pairs])
        self.pairs = []

    def _turn(self, vectors: Vectors) -> None:
        """Find the next direction and the first trial on it, or stop where we are."""
        self.converged = vectors.largest("g") <= self.rules.tolerance
        if self.stopped:
            vectors.assign("trial", 1.0, "x")
            return
        self._aim(vectors)
        slope = vectors.dot("g", "d")
        # The history misleads: begin again with the steepest descent.
        if slope >= 0.0:
            self._forget(vectors)
            self._aim(vectors)
            slope = vectors.dot("g", "d")
        # Without a history the gradient's length says nothing about a good step.
        first = 1.0 if self.pairs else min(1.0, 1.0 / vectors.total("g"))
        self.search = LineSearch(self.value, slope, first)
        self._try(vectors, first)

    def _aim(self, vectors: Vectors) -> None:
        """``d = -H·g`` by the two loops over the history (Nocedal 1980)."""
        vectors.assign("d", -1.0, "g")
        shares: dict[int, float] = {}
        for pair in reversed(self.pairs):
            s, y = f"s{pair}", f"y{pair}"
            shares[pair] = vectors.dot(s, "d") / vectors.dot(y, s)
            vectors.axpy("d", -shares[pair], y)
        if self.pairs:
            s, y = f"s{self.pairs[-1]}", f"y{self.pairs[-1]}"
            vectors.assign("d", vectors.dot(s, y) / vectors.dot(y, y), "d")
        for pair in self.pairs:
            s, y = f"s{pair}", f"y{pair}"
            back = vectors.dot(y, "d") / vectors.dot(y, s)
            vectors.axpy("d", shares[pair] - back, s)

    def _try(self, vectors: Vectors, step: float) -> None:
        vectors.assign("trial", 1.0, "x")
        vectors.axpy("trial", step, "d")
