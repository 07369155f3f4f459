"""The gate as a job of the jail: the server judges hostile source in here only.

`prepare` runs once in the zygote and reads everything that needs a file; `run` runs in
the jailed child and touches nothing but memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.policies.gate import GateRequest, engine_digest, judge
from stoilo.policies.policy import default_policy
from stoilo.policies.wire import (
    answer_batch,
    answer_request,
    parse_answer,
    parse_batch,
    render_batch,
    render_request,
)

if TYPE_CHECKING:
    from stoilo.core.levels import Level

__all__ = ["prepare", "run"]

# Touches each rule once, so that nothing is imported or read for the first time inside.
_WARM_UP = """import math
\u03b1 = "\u00e9" * 2
def task(kwargs):
    try:
        return math.pi + \u03b1[1 - 1]
    finally:
        pass
"""


def prepare(level: Level) -> None:
    """Load levels, policy and rules; `level` is that of the gate's own jail."""
    del level
    default_policy()
    engine_digest()
    for text in (_WARM_UP, "import ", "\u00e9\u202e", "import nothing"):
        request = GateRequest(source=text.encode(), validator=text.encode())
        parse_answer(answer_request(render_request(request)), request)
    judge(GateRequest(source=b"\xff"))
    parse_batch(answer_batch(render_batch([])), [])


def run(request: bytes, output: object) -> bytes:
    """Return the answer to one request or to a batch of them; total on any bytes."""
    del output
    if request.startswith(b"["):
        return answer_batch(request)
    return answer_request(request)
