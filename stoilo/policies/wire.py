"""The gate's request and answer as bytes, and the job that answers them in the jail.

Both directions are bounded and checked strictly. The answer comes from a process that
has parsed hostile source: it is believed only where it repeats what was asked.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.core.types import Finding, Severity, Verdict, bound_text
from stoilo.policies.findings import FINDINGS_SHOWN
from stoilo.policies.gate import GateRequest, engine_digest, judge
from stoilo.policies.levels import level_names
from stoilo.policies.policy import Policy, default_policy, parse_policy

if TYPE_CHECKING:
    from stoilo.core.levels import Level


ANSWER_BYTES = 256 * 1024  # Largest answer: `FINDINGS_SHOWN` findings of bounded length

_LAST = (1 << 31) - 1
_REQUEST_BYTES = 16 * 1024 * 1024  # two modules in base64, far below this


class _WireRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: bytes
    validator: bytes | None
    entry: str
    level: str
    policy: bytes
    validator_entries: tuple[str, ...]
    argument_types: tuple[str, ...]


class _WireError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    message: str
    hint: str


class _WireAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verdict: Verdict | None = None
    error: _WireError | None = None


def render_request(request: GateRequest) -> bytes:
    """Return the bytes that ask the child about `request`.

    Raises:
        UsageError: ``STO-P005``, a small field is out of bounds.
    """
    names = (request.entry, request.level, *request.validator_entries)
    long = any(
        len(name) > BOUNDS.name_chars for name in (*names, *request.argument_types)
    )
    if long or len(request.argument_types) > BOUNDS.blobs_per_task:
        raise UsageError(
            "STO-P005",
            "a name in the submission is too long",
            hint=f"names have at most {BOUNDS.name_chars} characters",
        )
    wire = _WireRequest(
        source=request.source,
        validator=request.validator,
        entry=request.entry,
        level=request.level,
        policy=request.policy.text,
        validator_entries=request.validator_entries,
        argument_types=request.argument_types,
    )
    try:
        return msgspec.json.encode(wire)
    except UnicodeEncodeError as error:  # a lone surrogate in a name
        raise UsageError("STO-P005", "a name in the submission is no text") from error


def parse_request(data: bytes) -> GateRequest:
    """Parse a request or raise ``STO-P005``."""
    if len(data) > _REQUEST_BYTES:
        raise TrustError("STO-P005", "the gate's request is too large")
    try:
        wire = msgspec.json.decode(data, type=_WireRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TrustError(
            "STO-P005", f"the gate's request is broken: {error}"
        ) from error
    return GateRequest(
        source=wire.source,
        validator=wire.validator,
        entry=wire.entry,
        level=wire.level,
        policy=_parse_policy(wire.policy),
        validator_entries=wire.validator_entries,
        argument_types=wire.argument_types,
    )


@functools.lru_cache(maxsize=4)
def _parse_policy(text: bytes) -> Policy:
    """Parse a policy once for the many requests that carry it; it is immutable."""
    return parse_policy(text)


def answer_request(data: bytes) -> bytes:
    """Return the answer to request bytes; total: every input has an answer."""
    try:
        answer = _WireAnswer(verdict=judge(parse_request(data)))
    except StoiloError as error:
        texts = bound_text(error.message), bound_text(error.hint)
        problem = _WireError(error.code, *texts)
        answer = _WireAnswer(error=problem)
    return msgspec.json.encode(answer)


def render_batch(questions: Sequence[bytes]) -> bytes:
    """Return one request that asks several questions of `render_request`."""
    return msgspec.json.encode([msgspec.Raw(question) for question in questions])


def answer_batch(data: bytes) -> bytes:
    """Return the answers to the bytes of `render_batch`, in order; total."""
    try:
        questions = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return answer_request(data)
    answers = [msgspec.Raw(answer_request(bytes(one))) for one in questions]
    return msgspec.json.encode(answers)


def parse_batch(
    data: bytes, requests: Sequence[GateRequest]
) -> list[Verdict | StoiloError]:
    """Return what the untrusted answer to a batch says about each request.

    Raises:
        InternalError: ``STO-P004``, the answers are not as many as the requests.
    """
    try:
        answers = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _disbelieve("it cannot be read") from error
    if len(answers) != len(requests):
        raise _disbelieve("it is incomplete")
    found: list[Verdict | StoiloError] = []
    for answer, request in zip(answers, requests, strict=True):
        try:
            found.append(parse_answer(bytes(answer), request))
        except StoiloError as error:
            found.append(error)
    return found


def parse_answer(data: bytes, request: GateRequest) -> Verdict:
    """Return the verdict in untrusted answer bytes about `request`.

    Raises:
        UsageError: the request was wrong, with the child's code.
        InternalError: ``STO-P004``, the answer is broken or about something else.
    """
    if len(data) > ANSWER_BYTES:
        raise _disbelieve("it is too large")
    try:
        answer = msgspec.json.decode(data, type=_WireAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _disbelieve("it cannot be read") from error
    if answer.error is not None:
        said = answer.error
        hint = bound_text(said.hint)
        raise UsageError(said.code, bound_text(said.message), hint=hint)
    if answer.verdict is None:
        raise _disbelieve("it is empty")
    _check_verdict(answer.verdict, request)
    return answer.verdict


def _check_verdict(verdict: Verdict, request: GateRequest) -> None:
    """Raise ``STO-P004`` where a verdict contradicts the request or itself."""
    names = level_names()
    errors = [found for found in verdict.findings if found.severity is Severity.ERROR]
    agrees = (
        verdict.source_digest == content_digest(request.source)
        and verdict.policy_digest == request.policy.digest
        and verdict.engine_digest == engine_digest()
        and verdict.level in {"", *names}
        and verdict.lowest_level in {"", *names}
        and request.level in {"", verdict.level}
        and len(verdict.findings) <= FINDINGS_SHOWN + 1
        and all(_is_placed(found) for found in verdict.findings)
        and verdict.admitted == (not errors)
    )
    if not agrees:
        raise _disbelieve("it does not fit the question")
    if verdict.admitted and not _is_reachable(verdict, names, request):
        raise _disbelieve("its level is not one that could admit")


def _is_placed(found: Finding) -> bool:
    place = (found.line, found.column, found.end_line, found.end_column)
    return found.end_line >= found.line and all(1 <= at <= _LAST for at in place)


def _is_reachable(
    verdict: Verdict, names: tuple[str, ...], request: GateRequest
) -> bool:
    if not verdict.level or not verdict.lowest_level:
        return False
    raised = names.index(verdict.level) >= names.index(verdict.lowest_level)
    return raised and request.policy.is_open(verdict.level)


def _disbelieve(reason: str) -> InternalError:
    return InternalError(
        "STO-P004",
        f"the gate's answer was not believed: {reason}",
        hint="submit again; if it stays, report the source to the operator",
    )


# Touches each rule once, so that nothing is imported or read for the first time inside.
# The gate as a job of the jail: the server judges hostile source in here only ---------
#
# `prepare` runs once in the zygote and reads everything that needs a file; `run` runs in
# the jailed child and touches nothing but memory.


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
