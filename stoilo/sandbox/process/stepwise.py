"""Tasks that yield states: run to their end, in one go or from a state on.

An entry that is a generator function opts in to checkpoints:

    def run(kwargs, state=None):
        done, total = state or (0, 0.0)
        while done < kwargs["steps"]:
            total += random.random()
            done += 1
            yield done, total
        return total

Each yielded state is any value that may be a result. A dict may hold the float
``"fraction_done"``, 0 to 1; the state stays one value, and nothing has to be imported.
Begun again after an interruption, the entry gets the last state that was kept; the first
time None. Before the first step and after each state every generator is seeded anew
(`determinism`), interrupted or not, so that both give one answer (I7). That holds for
what a task takes from its state; what it keeps elsewhere is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import DATA_BOUNDS
from stoilo.core.codec.values import from_node
from stoilo.core.errors import TrustError
from stoilo.sandbox.language.determinism import start_step
from stoilo.sandbox.process.progress import UNREADABLE_STATE, Progress, Teller

FRACTION = "fraction_done"
_GENERATOR = 0x20  # CO_GENERATOR of `inspect`, which a zygote does not load


class Steps(msgspec.Struct, frozen=True):
    """From where a run goes on, and who is told.

    Attributes:
        step: how many states were yielded before.
        state: the last of them, None before the first.
        teller: gets what is yielded, None: nobody.
    """

    step: int = 0
    state: object = None
    teller: Teller | None = None


def yields_states(function: Callable[..., Any]) -> bool:
    """Whether calling `function` makes a generator."""
    return type(function) is FunctionType and bool(
        function.__code__.co_flags & _GENERATOR
    )


def run_steps(
    function: Callable[..., Any],
    argument: Any,
    steps: Steps,
    encode: Callable[[object], bytes],
) -> Any:
    """Run a generator function to its end and return what it returns.

    Each state is encoded, also where nobody is told, so that one which cannot be ends every
    copy alike. Raises whatever the task and `encode` raise.
    """
    step = steps.step
    start_step(step)
    running = function(argument, state=steps.state)
    while True:
        try:
            state = next(running)
        except StopIteration as end:
            return end.value
        step += 1
        encoded = encode(state)
        if steps.teller is not None:
            steps.teller.tell(Progress(step, _fraction(state), encoded))
        start_step(step)


def read_state(encoded: bytes) -> object:
    """Return the state (hostile bytes) to go on from; raises ``STO-G122``."""
    try:
        state: object = from_node(skeleton.decode(encoded, DATA_BOUNDS))
    except Exception as error:  # any library may refuse what is in it
        raise TrustError(
            UNREADABLE_STATE, "the state to go on from cannot be read"
        ) from error
    return state


def _fraction(state: object) -> float | None:
    """Return how far a state says that the task is."""
    value: Any = state.get(FRACTION) if type(state) is dict else None
    if type(value) not in {int, float} or math.isnan(value):
        return None
    return min(max(float(value), 0.0), 1.0)
