"""The gate's questions and answers as bytes, and the job that answers them in the jail.

Both directions are bounded and checked strictly. The answers come from a process that
has parsed hostile source: they are believed only where they repeat what was asked.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.core.libraries import library_names, load_libraries
from stoilo.core.types import BOUNDS, Finding, Severity, Verdict, bound_text
from stoilo.policies.findings import FINDINGS_SHOWN
from stoilo.policies.gate import GateRequest, engine_digest, judge
from stoilo.policies.levels import level_names
from stoilo.policies.policy import Policy, default_policy, parse_policy

if TYPE_CHECKING:
    from stoilo.core.levels import Level


ANSWER_BYTES = 256 * 1024  # Largest answer: `FINDINGS_SHOWN` findings of bounded length

_LAST = (1 << 31) - 1
_REQUEST_BYTES = 16 * 1024 * 1024  # two modules in base64, far below this
_BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `GateRequest`, its policy as the text of its file."""

    source: bytes
    validator: bytes | None
    entry: str
    level: str
    policy: bytes
    validator_entries: tuple[str, ...]
    argument_types: tuple[str, ...]
    libraries: tuple[str, ...] | None


class _Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    message: str
    hint: str


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verdict: Verdict | None = None
    error: _Problem | None = None


def render_requests(requests: Sequence[GateRequest]) -> bytes:
    """Return the bytes that ask one child about each of `requests`.

    Raises:
        UsageError: ``STO-P005``, a small field is out of bounds.
    """
    try:
        return msgspec.json.encode([_ask(request) for request in requests])
    except UnicodeEncodeError as error:  # a lone surrogate in a name
        raise UsageError("STO-P005", "a name in the submission is no text") from error


def _ask(request: GateRequest) -> _Question:
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
    given = {field.name: getattr(request, field.name) for field in fields(request)}
    return _Question(**given | {"policy": request.policy.text})


def parse_requests(data: bytes) -> list[GateRequest]:
    """Parse the bytes of `render_requests` or raise ``STO-P005``."""
    if len(data) > _REQUEST_BYTES:
        raise TrustError("STO-P005", "the gate's request is too large")
    try:
        asked = msgspec.json.decode(data, type=list[_Question])
    except _BROKEN as error:
        raise TrustError(
            "STO-P005", f"the gate's request is broken: {error}"
        ) from error
    return [
        GateRequest(**msgspec.structs.asdict(one) | {"policy": _policy_of(one.policy)})
        for one in asked
    ]


@functools.lru_cache(maxsize=4)
def _policy_of(text: bytes) -> Policy:
    """Parse a policy once for the many requests that carry it; it is immutable."""
    return parse_policy(text)


def answer_requests(data: bytes) -> bytes:
    """Return the answers to request bytes, in order; total: every input has an answer."""
    try:
        answers = [_answer(request) for request in parse_requests(data)]
    except StoiloError as error:
        answers = [_refuse(error)]
    return msgspec.json.encode(answers)


def _answer(request: GateRequest) -> _Answer:
    try:
        return _Answer(verdict=judge(request))
    except StoiloError as error:
        return _refuse(error)


def _refuse(error: StoiloError) -> _Answer:
    texts = bound_text(error.message), bound_text(error.hint)
    return _Answer(error=_Problem(error.code, *texts))


def parse_answers(
    data: bytes, requests: Sequence[GateRequest]
) -> list[Verdict | StoiloError]:
    """Return what untrusted answer bytes say about each request: a verdict or an error.

    Raises:
        InternalError: ``STO-P004``, they cannot be read or are not as many as asked.
    """
    if len(data) > ANSWER_BYTES:
        raise _disbelieve("it is too large")
    try:
        answers = msgspec.json.decode(data, type=list[_Answer])
    except _BROKEN as error:
        raise _disbelieve("it cannot be read") from error
    if len(answers) != len(requests):
        raise _disbelieve("it is incomplete")
    return [_believe(*pair) for pair in zip(answers, requests, strict=True)]


def parse_answer(data: bytes, request: GateRequest) -> Verdict:
    """Return the verdict in untrusted answer bytes about `request`.

    Raises:
        UsageError: the request was wrong, with the child's code.
        InternalError: ``STO-P004``, the answer is broken or about something else.
    """
    (found,) = parse_answers(data, (request,))
    if isinstance(found, StoiloError):
        raise found
    return found


def _believe(answer: _Answer, request: GateRequest) -> Verdict | StoiloError:
    if answer.error is not None:
        said = answer.error
        hint = bound_text(said.hint)
        return UsageError(said.code, bound_text(said.message), hint=hint)
    if answer.verdict is None:
        return _disbelieve("it is empty")
    verdict, names = answer.verdict, level_names()
    if not _fits(verdict, names, request):
        return _disbelieve("it does not fit the question")
    if verdict.admitted and not _is_reachable(verdict, names, request):
        return _disbelieve("its level is not one that could admit")
    return verdict


def _fits(verdict: Verdict, names: tuple[str, ...], request: GateRequest) -> bool:
    """Whether a verdict contradicts neither the request nor itself."""
    errors = [found for found in verdict.findings if found.severity is Severity.ERROR]
    return (
        verdict.source_digest == content_digest(request.source)
        and verdict.policy_digest == request.policy.digest
        and verdict.engine_digest == engine_digest()
        and verdict.level in {"", *names}
        and verdict.lowest_level in {"", *names}
        and set(verdict.libraries) <= _offered(request)
        and request.level in {"", verdict.level}
        and len(verdict.findings) <= FINDINGS_SHOWN + 1
        and all(_is_placed(found) for found in verdict.findings)
        and verdict.admitted == (not errors)
    )


def _offered(request: GateRequest) -> set[str]:
    shipped = set(library_names())
    return shipped if request.libraries is None else shipped & set(request.libraries)


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


# The gate as a job of the jail: the server judges hostile source in here only ---------
#
# `prepare` runs once in the zygote and reads everything that needs a file; `run` runs in
# the jailed child and touches nothing but memory.


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
    load_libraries()
    for text in (_WARM_UP, "import ", "\u00e9\u202e", "import nothing"):
        request = GateRequest(source=text.encode(), validator=text.encode())
        parse_answer(answer_requests(render_requests([request])), request)
    judge(GateRequest(source=b"\xff"))


def run(request: bytes, output: object) -> bytes:
    """Return the answers to the bytes of `render_requests`; total on any bytes."""
    del output
    return answer_requests(request)
