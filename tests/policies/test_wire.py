from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import load_level
from stoilo.policies.wire import (
    answer_requests,
    parse_answer,
    parse_requests,
    prepare,
    render_requests,
    run,
)

REQUEST = GateRequest(
    b"def f(d): return 1",
    validator=b"def v(d): return True",
    entry="f",
    level="pure",
    validator_entries=("v",),
)


def answer_with(**changes: object) -> bytes:
    """Return an answer to REQUEST whose verdict was tampered with."""
    verdict = msgspec.structs.replace(judge(REQUEST), **changes)
    return msgspec.json.encode([{"verdict": verdict, "error": None}])


def test_request_survives_the_pipe() -> None:
    assert parse_requests(render_requests([REQUEST])) == [REQUEST]


def test_answer_is_the_verdict() -> None:
    answer = answer_requests(render_requests([REQUEST]))
    assert parse_answer(answer, REQUEST) == judge(REQUEST)


def test_job_answers_as_the_gate_does() -> None:
    prepare(load_level("pure"))
    assert parse_answer(run(render_requests([REQUEST]), None), REQUEST).admitted


@given(st.binary(max_size=200).filter(lambda data: data.strip() != b"[]"))
def test_job_answers_any_bytes_with_an_error(data: bytes) -> None:
    with pytest.raises(UsageError, match="STO-P00"):
        parse_answer(run(data, None), REQUEST)


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_answer_bytes_end_in_our_error(data: bytes) -> None:
    with pytest.raises(StoiloError):
        parse_answer(data, REQUEST)


@given(st.binary(max_size=100))
@settings(deadline=None)
def test_any_source_has_an_answer_that_is_believed(source: bytes) -> None:
    request = GateRequest(source)
    answer = answer_requests(render_requests([request]))
    assert parse_answer(answer, request) == judge(request)


@pytest.mark.parametrize(
    "changes",
    [
        {"admitted": False},
        {"source_digest": "0" * 64},
        {"policy_digest": "0" * 64},
        {"engine_digest": "0" * 64},
        {"level": "numeric"},
        {"level": "root"},
        {"level": ""},
        {"lowest_level": ""},
        {"lowest_level": "numeric"},
        {"lowest_level": "root"},
    ],
)
def test_answer_that_does_not_fit_the_question_is_not_believed(
    changes: dict[str, object],
) -> None:
    with pytest.raises(InternalError, match="STO-P004"):
        parse_answer(answer_with(**changes), REQUEST)


def test_untampered_answer_is_believed() -> None:
    assert parse_answer(answer_with(), REQUEST).admitted


@pytest.mark.parametrize("data", [b"{}", b"[]", b"x" * 999_999, b"[" * 9999])
def test_broken_answer_is_not_believed(data: bytes) -> None:
    with pytest.raises(InternalError, match="STO-P004"):
        parse_answer(data, REQUEST)


@pytest.mark.parametrize(
    "changes",
    [
        {"entry": "x" * 129},
        {"entry": "\ud800"},
        {"level": "x" * 129},
        {"validator_entries": ("x" * 129,)},
        {"argument_types": ("x",) * 99},
    ],
)
def test_names_out_of_bounds_are_usage_errors(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="STO-P005"):
        render_requests([replace(REQUEST, **changes)])


def test_oversize_request_is_refused() -> None:
    with pytest.raises(TrustError, match="STO-P005"):
        parse_requests(b" " * (16 * 1024 * 1024 + 1))
