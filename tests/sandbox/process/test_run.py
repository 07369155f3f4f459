"""`stoilo.sandbox.process.run`: what the parent makes of what came out of the jail."""

import dataclasses
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.codec import skeleton
from stoilo.core.errors import InternalError
from stoilo.core.types import RunLayer, RunLimits, RunOutcome, RunStatus
from stoilo.sandbox.process.channel import OUT_OF_MEMORY, Ended, TaskRequest
from stoilo.sandbox.process.report import (
    Evidence,
    JailReport,
    JailStatus,
    choose_limits,
    judge,
    read_items,
    read_outcome,
)

OK = {"status": "ok", "value": skeleton.encode(5)}


def finished(frame):
    data = frame if isinstance(frame, bytes) else skeleton.encode(frame)
    return JailReport(JailStatus.FINISHED, frame=data)


def evidence(**changes):
    plain = Evidence(Ended(0, 0.1, 1), "", b"", b"", RunLimits(cpu_s=1), 0.1, ())
    return dataclasses.replace(plain, **changes)


def test_value_is_kept_encoded():
    outcome = read_outcome(finished(OK))
    assert (outcome.status, outcome.value) == (RunStatus.OK, skeleton.encode(5))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"STO\x01",
        [],
        {},
        {"status": "ok"},
        {"status": "ok", "value": b"garbage"},
        {"status": "ok", "value": 5},
        {"status": "finished"},
        {"status": "user_error", "layer": "moon"},
        {"status": 7},
    ],
)
def test_malformed_frame_is_a_result_error(frame):
    outcome = read_outcome(finished(frame))
    assert (outcome.status, outcome.layer) == (RunStatus.USER_ERROR, RunLayer.RESULT)


@given(st.binary(max_size=200))
def test_any_frame_ends_in_an_outcome(frame):
    assert isinstance(read_outcome(finished(frame)), RunOutcome)
    assert len(read_items(finished(b"STO\x01" + frame), 2)) == 2


@given(
    st.dictionaries(
        st.sampled_from(
            ["status", "value", "error_type", "error_text", "code", "layer"]
        ),
        st.none() | st.text("ok:e", max_size=9) | st.binary(max_size=9) | st.integers(),
    )
)
def test_any_fields_end_in_an_outcome(fields):
    assert isinstance(read_outcome(finished(fields)), RunOutcome)


@pytest.mark.parametrize("name", ["MemoryError", "_ArrayMemoryError"])
def test_name_of_an_error_says_nothing_about_a_limit(name):
    frame = {"status": "user_error", "error_type": name, "error_text": ""}
    outcome = read_outcome(finished(frame))
    assert (outcome.status, outcome.limit) == (RunStatus.USER_ERROR, "")


def test_memory_limit_that_the_job_tells_of_is_the_memory_limit():
    frame = {"status": "killed", "layer": "limits", "code": "STO-S013"}
    outcome = read_outcome(finished(frame))
    assert (outcome.status, outcome.limit) == (RunStatus.KILLED, "memory_bytes")


@pytest.mark.parametrize("status", range(256))
def test_no_exit_status_of_a_program_names_a_limit_or_the_host(status):
    report = judge(evidence(ended=Ended(status << 8, 0.1, 1), result=b""))
    assert (report.code, report.limit, report.blames_host) == ("STO-S021", "", False)


@pytest.mark.parametrize(
    ("wall_s", "short", "code"),
    [
        (1.5, False, "STO-S011"),  # charged by ticks that wait4 does not show
        (1.5, True, "STO-S005"),  # the control: the kernel was short of memory
        (0.5, False, "STO-S005"),  # too early for the limit
    ],
)
def test_kill_that_only_the_processor_limit_can_have_sent_is_the_limit(
    wall_s, short, code
):
    seen = evidence(ended=Ended(9, 0.1, 1), wall_s=wall_s, short_of_memory=short)
    assert judge(seen).code == code


@pytest.mark.parametrize("number", [-1, 0, 57, 1 << 30])
def test_denied_call_is_never_a_fault_of_the_host(number):
    report = judge(evidence(ended=Ended(9, 0, 1, denied=True, syscall=number)))
    assert (report.code, report.blames_host) == ("STO-S010", False)


@given(st.integers(0, 0xFFFF), st.binary(max_size=20))
def test_every_wait_status_has_an_ending(status, result):
    assert judge(evidence(ended=Ended(status, 0.1, 1), result=result)).status


def test_items_have_their_own_outcomes():
    failed = {"status": "user_error", "error_type": "ValueError", "error_text": "no"}
    first, second = read_items(finished({"items": [OK, failed]}), 2)
    assert (first.status, second.error) == (RunStatus.OK, "ValueError: no")


def test_wrong_number_of_items_is_malformed():
    outcomes = read_items(finished({"items": [OK]}), 2)
    assert [outcome.layer for outcome in outcomes] == [RunLayer.RESULT] * 2


def test_killed_run_gives_every_item_the_same_outcome():
    report = JailReport(
        JailStatus.KILLED, code="STO-S011", layer=RunLayer.LIMITS, limit="wall_s"
    )
    assert {outcome.limit for outcome in read_items(report, 3)} == {"wall_s"}


def test_fault_of_the_host_is_no_outcome_of_the_task():
    report = JailReport(JailStatus.CRASHED, code="STO-S005", detail="died")
    with pytest.raises(InternalError, match="STO-S005"):
        read_outcome(report)


@pytest.mark.parametrize(
    ("changes", "code", "layer"),
    [
        ({"ended": None}, "STO-S005", RunLayer.KERNEL),
        ({"ended": Ended(9, 1.0, 1)}, "STO-S011", RunLayer.LIMITS),
        ({"ended": Ended(9, 0.2, 1)}, "STO-S005", RunLayer.KERNEL),
        ({"ended": Ended(31, 0.2, 1)}, "STO-S010", RunLayer.KERNEL),
        ({"ended": Ended(11, 0.2, 1)}, "STO-S020", RunLayer.LANGUAGE),
        ({"ended": Ended(9, 0, 1), "hit": "wall_s"}, "STO-S011", RunLayer.LIMITS),
        (
            {"ended": Ended(9, 0, 1, denied=True, syscall=57), "hit": "wall_s"},
            "STO-S010",
            RunLayer.KERNEL,
        ),
        (
            {"ended": Ended(9, 0, 1, denied=True, syscall=-1)},
            "STO-S010",
            RunLayer.KERNEL,
        ),
        ({"ended": Ended(0, 0, 1, refused="landlock")}, "STO-S002", RunLayer.KERNEL),
        ({"ended": Ended(34, 0.2, 1)}, "STO-S020", RunLayer.LANGUAGE),
        ({"result": OUT_OF_MEMORY}, "STO-S013", RunLayer.LIMITS),
        ({"result": b"\0" * 7 + b"\1xy"}, "STO-S021", RunLayer.RESULT),
        ({"result": b"\0" * 7 + b"\2x"}, "STO-S021", RunLayer.RESULT),
        ({"result": b""}, "STO-S021", RunLayer.LANGUAGE),
        ({"result": b"\0" * 7 + b"\1x"}, "", None),
    ],
)
def test_signs_are_read_as_they_are_meant(changes, code, layer):
    report = judge(evidence(**changes))
    assert (report.code, report.layer) == (code, layer)


def test_timeout_raises_the_wall_limit_up_to_the_maximum_only(pure):
    assert choose_limits(pure, None) == pure.default_limits()
    assert choose_limits(pure, 300.5).wall_s == 301
    assert choose_limits(pure, 1e9).wall_s == pure.max_limits().wall_s


ADD = "def helper(x):\n    return x + 1\n\ndef add(kw):\n    return helper(kw['a'])\n"


def run_cli(tmp_path, source, *options):
    path = tmp_path / "task.py"
    path.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", "sandbox", "run", path, "--json", *options],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else None


def test_cli_runs_the_last_function_with_the_given_dict(tmp_path):
    code, result = run_cli(tmp_path, ADD, "--kwargs", '{"a": 4}')
    assert (code, result["status"], result["value"]) == (0, "ok", 5)


def test_cli_runs_a_task_that_yields_states_to_its_end(tmp_path):
    source = (
        "import random\n"
        "def run(kw, state=None):\n"
        "    drawn = state or []\n"
        "    while len(drawn) < kw['n']:\n"
        "        drawn = [*drawn, random.random()]\n"
        "        yield drawn\n"
        "    return drawn\n"
    )
    code, result = run_cli(tmp_path, source, "--kwargs", '{"n": 3}')
    again = run_cli(tmp_path, source, "--kwargs", '{"n": 3}')[1]
    assert (code, len(set(result["value"]))) == (0, 3)
    assert again["value"] == result["value"]


def test_request_is_a_skeleton_of_its_fields():
    request = TaskRequest("s", "e", b"a", (b"b",), tell_ms=5, step=2, state=b"x")
    fields = skeleton.decode(request.encode())
    assert set(fields) == set(TaskRequest.__struct_fields__)
    assert (fields["tell_ms"], fields["step"], bytes(fields["state"])) == (5, 2, b"x")


def test_cli_reads_arguments_from_a_file_and_runs_a_named_entry(tmp_path):
    (tmp_path / "kw.json").write_text('{"a": {"$complex": [1, 2]}}')
    source = "def first(kw):\n    return kw['a'] * 2\n" + ADD
    options = ("--kwargs", f"@{tmp_path / 'kw.json'}", "--entry", "first")
    code, result = run_cli(tmp_path, source, *options)
    assert (code, result["value"]) == (0, {"$complex": [2.0, 4.0]})


@pytest.mark.parametrize(
    ("body", "code", "status", "layer"),
    [
        ("raise ValueError('no')", 5, "user_error", "language"),
        ("raise SystemExit(3)", 5, "user_error", "language"),
        ("return lambda: 1", 5, "user_error", "result"),
        ("return [0] * (1 << 30)", 4, "killed", "limits"),
        ("return b'x' * (20 << 20)", 4, "killed", "limits"),
        ("while True: print('x' * 9999)", 4, "killed", "limits"),
        ("return ().__class__.__bases__", 3, "refused", "gate"),
        ("return getattr((), '__sub' + 'classes__')", 3, "refused", "language"),
        ("return (", 3, "refused", "gate"),
    ],
)
def test_cli_outcome_is_as_the_contract_says(tmp_path, body, code, status, layer):
    got, result = run_cli(tmp_path, f"def f(kw):\n    {body}\n")
    assert (got, result["status"], result["layer"]) == (code, status, layer), result


@pytest.mark.parametrize(
    "options",
    [
        ("--kwargs", "[]"),
        ("--kwargs", '{"a": NaN}'),
        ("--kwargs", '{"a": 1, "a": 2}'),
        ("--kwargs", "@/nowhere"),
        ("--entry", "missing"),
        ("--timeout", "0"),
        ("--level", "none"),
    ],
)
def test_cli_refuses_bad_usage_with_two(tmp_path, options):
    assert run_cli(tmp_path, ADD, *options) == (2, None)


def test_cli_without_a_function_is_usage(tmp_path):
    assert run_cli(tmp_path, "x = 1\n") == (2, None)


@pytest.mark.parametrize(
    ("status", "layer", "code"),
    [
        ("killed", "kernel", "STO-S010"),
        ("killed", "limits", "STO-S011"),
        ("refused", "kernel", "STO-G101"),
        ("user_error", "language", "STO-S005"),
        ("user_error", "limits", "STO-G200"),
    ],
)
def test_frame_that_tells_what_only_the_supervisor_sees_is_malformed(
    status, layer, code
):
    frame = {"status": status, "layer": layer, "code": code}
    report = JailReport(JailStatus.FINISHED, frame=skeleton.encode(frame))
    assert read_outcome(report).code == "STO-S021"
