from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.types import RunStatus
from stoilo.executor.verifier.workunit import Disposition
from stoilo.server.admission import tokens
from stoilo.server.admission.blobs import granted_blobs
from stoilo.server.db import schema
from stoilo.server.engines.interface import OutcomeKind, ResultVerdict
from stoilo.server.validation.answers import parse_answer
from stoilo.server.validation.validators import SwappedProgram, check_program
from tests.support.server import make_result
from tests.support.serverbench import Bench

VALIDATORS = {"validator_module": b"# by name in the stand-in\n"}
OK = {"status": "ok", "value": encode(2)}
RAISED = {"status": "user_error", "error_type": "ValueError", "error_text": "x < 0"}


def issue(bench: Bench, **fields: object) -> tuple[str, bytes]:
    return asyncio.run(bench.issued("k", **fields))


def verdict(bench: Bench, name: str, data: bytes) -> tuple[str, str]:
    check = bench.server.validation.check(bench.engine.receive(name, 0, data))
    return check.verdict.value, check.code


@pytest.mark.parametrize(
    "header",
    [
        {"result": "other_1_0"},
        {"workunit": "other_1"},
        {"admission": "0" * 64},
        {"attempt": 2},
        {"flavor": "0" * 64},
    ],
)
def test_header_of_another_copy_is_refused_undecoded(
    bench: Bench, header: dict[str, object]
) -> None:
    name, statement = issue(bench)
    data = make_result(f"{name}_0", statement, b"\xff not decodable", **header)
    assert verdict(bench, name, data) == ("invalid", "STO-R081")


def test_file_that_changed_since_it_was_received_is_refused(bench: Bench) -> None:
    name, statement = issue(bench)
    data = make_result(f"{name}_0", statement, encode(OK))
    received = bench.engine.receive(name, 0, data)
    assert bench.server.validation.check(received).verdict is ResultVerdict.VALID
    received.path.write_bytes(data[:-1] + b"!")  # of the same size
    check = bench.server.validation.check(received)
    assert (check.verdict, check.code) == (ResultVerdict.INVALID, "STO-R081")


@pytest.mark.parametrize(("step", "format_"), [(0, 1), (3, 2)])
def test_resumed_run_is_known_from_its_header(
    bench: Bench, step: int, format_: int
) -> None:
    name, statement = issue(bench)
    said = {"format": f"stoilo-result/{format_}"} | (
        {"resumed_at": step} if step else {}
    )
    data = make_result(f"{name}_0", statement, OK, **said)
    check = bench.server.validation.check(bench.engine.receive(name, 0, data))
    assert (check.verdict.value, check.resumed_at) == ("valid", step)


def test_result_of_another_task_cannot_be_replayed(bench: Bench) -> None:
    name, _ = issue(bench)
    other, statement = asyncio.run(bench.issued("k2"))
    data = make_result(f"{other}_0", statement, OK)
    assert verdict(bench, name, data) == ("invalid", "STO-R081")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x80\x04K\x01.",
        encode([1]),
        encode({"status": "ok"}),
        encode({"status": "ok", "value": b"\x80\x04K\x01."}),
        encode({"status": "fine", "value": encode(1)}),
        encode({"status": ["ok"], "value": encode(1)}),
        encode({"status": {}, "value": encode(1)}),
    ],
)
def test_hostile_frame_is_invalid_and_never_raises(bench: Bench, frame: bytes) -> None:
    name, statement = issue(bench)
    data = make_result(f"{name}_0", statement, frame)
    assert verdict(bench, name, data)[0] == "invalid"


@given(st.binary(max_size=300), st.integers(0, 3))
def test_any_bytes_end_in_an_answer_or_our_error(data: bytes, items: int) -> None:
    try:
        parse_answer(data, items)
    except TrustError as error:
        assert error.code.startswith("STO-")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=30,
)
@given(data=st.binary(max_size=300))
def test_any_result_file_gets_a_verdict(bench: Bench, data: bytes) -> None:
    name, _ = issue(bench)
    assert verdict(bench, name, data)[0] == "invalid"


def test_code_that_is_none_is_not_repeated(bench: Bench) -> None:
    name, statement = issue(bench)
    said = {"disposition": Disposition.REFUSED, "code": "<b>STO-R001</b>"}
    data = make_result(f"{name}_0", statement, b"", **said)
    assert verdict(bench, name, data) == ("invalid", "STO-R082")
    frame = encode({"status": "killed", "code": "\x1b[2J"})
    assert (
        parse_answer(make_result(f"{name}_0", statement, frame), 0).items[0].code
        == "STO-R082"
    )


def test_opt_in_refusal_is_not_an_error_result(bench: Bench) -> None:
    name, statement = issue(bench)
    data = make_result(
        f"{name}_0",
        statement,
        b"",
        disposition=Disposition.NOT_FOR_THIS_HOST,
        status=None,
        code="STO-A050",
    )
    assert verdict(bench, name, data) == ("not_for_this_host", "STO-A050")


def test_killed_run_is_invalid_with_the_limits_code(bench: Bench) -> None:
    name, statement = issue(bench)
    data = make_result(
        f"{name}_0", statement, b"", status=RunStatus.KILLED, code="STO-S011"
    )
    assert verdict(bench, name, data) == ("invalid", "STO-S011")


def test_raising_function_needs_a_quorum_of_errors(bench: Bench) -> None:
    name, statement = issue(bench)
    files = [
        make_result(f"{name}_{n}", statement, RAISED, status=RunStatus.USER_ERROR)
        for n in (0, 1)
    ]
    bench.engine.deliver(name, files)
    answer = bench.poll(name)
    assert (answer.state, answer.error_type) == ("user_error", "ValueError")
    assert answer.error_text == "x < 0"


@pytest.mark.parametrize(
    ("calls", "below"),
    [("f:3\ng:2", "\n  at f:3\n  at g:2"), ("<script>:x\n" * 99, ""), (7, "")],
    ids=["told", "hostile", "no text"],
)
def test_calls_stand_below_an_errors_text(
    bench: Bench, calls: object, below: str
) -> None:
    name, statement = issue(bench)
    told = {**RAISED, "calls": calls}
    files = [
        make_result(f"{name}_{n}", statement, told, status=RunStatus.USER_ERROR)
        for n in (0, 1)
    ]
    bench.engine.deliver(name, files)
    assert bench.poll(name).error_text == "x < 0" + below


def run_validator(bench: Bench, entry: str, op: str) -> tuple[str, str]:
    name, statement = issue(bench, **VALIDATORS, **{f"{op}_entry": entry})
    files = [make_result(f"{name}_{n}", statement, OK) for n in (0, 1, 2)]
    bench.engine.deliver(name, files)
    answer = bench.poll(name)
    return answer.state, answer.code


def raising(*_values: object) -> bool:
    raise ValueError


@pytest.mark.parametrize(
    ("op", "function", "expected"),
    [
        ("init", raising, ("system_error", "STO-R053")),
        ("init", lambda _: 1, ("system_error", "STO-R054")),
        ("init", lambda _: False, ("system_error", "STO-R057")),
        ("init", lambda _: True, ("succeeded", "")),
        ("compare", raising, ("system_error", "STO-R053")),
        ("compare", lambda _a, _b: None, ("system_error", "STO-R054")),
        ("compare", lambda _a, _b: False, ("system_error", "STO-R052")),
        ("compare", lambda _a, _b: True, ("succeeded", "")),
    ],
)
def test_validator_decides_as_the_thesis_says(
    bench: Bench, op: str, function: object, expected: tuple[str, str]
) -> None:
    bench.validators.functions["check"] = function  # type: ignore[assignment]  # of many shapes
    assert run_validator(bench, "check", op) == expected


def swap_validator(bench: Bench, module: bytes) -> None:
    """Do as somebody does who can write the server's database."""
    table = schema.content
    with bench.store.write() as connection:
        connection.execute(
            table.update()
            .where(table.c.digest == content_digest(VALIDATORS["validator_module"]))
            .values(data=module)
        )


@pytest.mark.parametrize("op", ["init", "compare"])
def test_swapped_validator_module_judges_nothing(bench: Bench, op: str) -> None:
    bench.validators.functions["check"] = lambda *_: True
    name, statement = issue(bench, **VALIDATORS, **{f"{op}_entry": "check"})
    swap_validator(bench, b"# says yes to everything\n")
    left, right = (
        bench.engine.receive(name, n, make_result(f"{name}_{n}", statement, OK))
        for n in (0, 1)
    )
    judge = bench.server.validation
    answers = [judge.check(left), judge.compare(left, right)]
    refused = [answer for answer in answers if answer.verdict.value == "fatal"]
    assert {answer.code for answer in refused} == {"STO-R067"}
    assert answers[1] in refused


@pytest.mark.parametrize("swapped", [True, False])
def test_task_whose_validators_were_swapped_ends(
    bench: Bench, caplog: pytest.LogCaptureFixture, *, swapped: bool
) -> None:
    bench.validators.functions["check"] = lambda *_: True
    name, statement = issue(bench, **VALIDATORS, init_entry="check")
    if swapped:
        swap_validator(bench, b"# says yes to everything\n")
    files = [make_result(f"{name}_{n}", statement, OK) for n in (0, 1)]
    bench.engine.deliver(name, files)
    answer = bench.poll(name)
    ended = ("system_error", "STO-R067") if swapped else ("succeeded", "")
    assert (answer.state, answer.code) == ended
    assert ("STO-R067" in caplog.text) is swapped


def test_map_whose_validators_are_swapped_before_its_outcome_ends(bench: Bench) -> None:
    bench.validators.functions["check"] = lambda *_: True
    fields = {"arguments": encode([{}, {}]), "map_items": 2, "compare_entry": "check"}
    name, statement = issue(bench, **VALIDATORS, **fields)
    frame = {"items": [OK, OK]}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    valid = tuple(bench.engine.receive(name, n, file) for n, file in enumerate(files))
    swap_validator(bench, b"# says yes to everything\n")
    bench.engine.end(name, OutcomeKind.CANONICAL, canonical=valid[0], valid=valid)
    assert bench.poll(name).code == "STO-R067"


def test_swapped_subjects_of_the_stored_statement_judge_nothing(bench: Bench) -> None:
    _, statement = issue(bench)
    swapped = statement.replace(content_digest(b"").encode(), b"0" * 64, 1)
    with pytest.raises(SwappedProgram, match="STO-A011"):
        check_program(swapped, b"")
    check_program(statement, b"")


def test_validator_module_never_leaves_the_server(bench: Bench) -> None:
    name, _ = issue(bench, **VALIDATORS, init_entry="check")
    sources = [file.source for file in bench.engine.specs[name].files]
    assert VALIDATORS["validator_module"] not in sources


def test_large_value_is_fetched_as_a_blob(bench: Bench) -> None:
    name, statement = issue(bench)
    value = encode(b"x" * (2 * 1024 * 1024))
    frame = {"status": "ok", "value": value}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)
    answer = bench.poll(name)
    assert (answer.value, len(answer.value_blob)) == (b"", 64)
    assert bench.server.blobs.path(answer.value_blob).read_bytes() == value
    with bench.store.read() as connection:  # the tasks of its owner may name it
        owner = tokens.find_owner(connection, bench.token, bench.clock())
        for who, may in ((owner.account_id, True), (owner.account_id + 1, False)):
            assert bool(granted_blobs(connection, who, [answer.value_blob])) is may


def test_map_task_keeps_agreeing_items(bench: Bench) -> None:
    name, statement = issue(bench, arguments=encode([{}, {}, {}]), map_items=3)

    def frame(*values: int) -> dict[str, object]:
        return {"items": [{"status": "ok", "value": encode(v)} for v in values]}

    files = [
        make_result(f"{name}_0", statement, frame(1, 2, 3)),
        make_result(f"{name}_1", statement, frame(1, 2, 4)),
    ]
    assert bench.engine.deliver(name, files) is OutcomeKind.CANONICAL
    states = [item.state for item in bench.poll(name).items]
    assert states == ["succeeded", "succeeded", "system_error"]


@pytest.mark.parametrize(("quorum", "stand"), [(1, True), (0, False)])
def test_map_items_of_one_result_stand_where_one_was_enough(
    bench: Bench, quorum: int, *, stand: bool
) -> None:
    name, statement = issue(bench, arguments=encode([{}, {}]), map_items=2)
    frame = {"items": [{"status": "ok", "value": encode(v)} for v in (1, 2)]}
    result = bench.engine.receive(name, 0, make_result(f"{name}_0", statement, frame))
    bench.engine.end(
        name, OutcomeKind.CANONICAL, canonical=result, valid=(result,), quorum=quorum
    )
    states = [item.state for item in bench.poll(name).items]
    assert (states == ["succeeded", "succeeded"]) is stand


def test_map_result_that_mostly_differs_is_not_the_same(bench: Bench) -> None:
    name, statement = issue(bench, arguments=encode([{}, {}, {}]), map_items=3)

    def frame(*values: int) -> dict[str, object]:
        return {"items": [{"status": "ok", "value": encode(v)} for v in values]}

    cheat = make_result(f"{name}_0", statement, frame(7, 8, 3))
    honest = [make_result(f"{name}_{n}", statement, frame(1, 2, 3)) for n in (1, 2)]
    bench.engine.deliver(name, [cheat, *honest])
    values = [item.value for item in bench.poll(name).items]
    assert values == [encode(1), encode(2), encode(3)]


def test_file_that_shrank_after_the_report_is_invalid(bench: Bench) -> None:
    name, statement = issue(bench)
    result = bench.engine.receive(name, 0, make_result(f"{name}_0", statement, OK))
    result.path.write_bytes(result.path.read_bytes()[:-1])
    check = bench.server.validation.check(result)
    assert check.verdict is ResultVerdict.INVALID
