import sys
import warnings
from io import StringIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.codec import skeleton
from stoilo.core.types import BOUNDS
from stoilo.sandbox.language.rules import TASK_MODULE
from stoilo.sandbox.language.runtime import TaskPrinter
from stoilo.sandbox.language.transformer import compile_source
from stoilo.sandbox.process.binder import describe_exception, scrub_paths
from stoilo.sandbox.process.task_job import run_call


def test_last_def_is_the_entry_and_gets_one_dict(language):
    source = "def first(d): return 1\ndef last(d): return d['x'] + 1\nclass C: pass"
    assert language.value(source, {"x": 4}) == 5
    assert language.value(source, entry="first") == 1


def test_kept_code_answers_for_its_own_text_alone(language):
    source = "def f(d): return 1"
    level = language.runtime.level
    language.runtime.kept[source] = compile_source("def f(d): return 7", level)
    try:
        found = [language.value(text) for text in (source, f"{source}\n")]
    finally:
        language.runtime.kept.clear()
    assert found == [7, 1]


def test_missing_entry_has_its_code(language):
    for source, entry in (("x = 1", ""), ("def f(d): pass", "g"), ("x=1", "x")):
        frame, _ = language.call(source, entry=entry)
        assert (frame["status"], frame["code"]) == ("refused", "STO-P030")


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("raise ValueError('boom')", "ValueError", "boom"),
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("return f(d)", "RecursionError", "maximum recursion depth exceeded"),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("raise Own('mine')", "Own", "mine"),
        ("assert d, 'empty'", "AssertionError", "empty"),
    ],
)
def test_exception_becomes_a_user_error(language, body, kind, text):
    source = f"class Own(Exception): pass\ndef f(d):\n    {body}"
    frame, _ = language.call(source)
    assert (frame["status"], frame["layer"]) == ("user_error", "language")
    assert frame["error_type"] == kind
    assert frame["error_text"].startswith(text)


def test_clean_exit_is_no_error(language):
    assert language.value("import sys\ndef f(d): sys.exit()") is None


def test_memory_error_is_a_limit(language):
    frame, _ = language.call("def f(d): raise MemoryError")
    assert (frame["status"], frame["layer"]) == ("killed", "limits")


def test_guard_refusal_at_the_top_is_the_language_layers(language):
    frame, _ = language.call("def f(d): return getattr(f, '__code__')")
    assert (frame["status"], frame["layer"]) == ("refused", "language")
    assert frame["code"] == "STO-G101"


def test_static_refusal_is_the_gates(language):
    for source in ("def f(d): return d.__globals__", "def f(:"):
        frame, _ = language.call(source)
        assert (frame["status"], frame["layer"]) == ("refused", "gate")


def test_value_that_does_not_travel_is_a_result_error(language):
    for value in ("f", "object()", "[iter([])]", "int", "range(3)"):
        frame, _ = language.call(f"def f(d): return {value}")
        assert (frame["status"], frame["layer"]) == ("user_error", "result")
        assert frame["code"].startswith("STO-D")


def test_failing_module_body_is_a_user_error(language):
    frame, _ = language.call("x = 1 / 0\ndef f(d): pass")
    assert (frame["status"], frame["error_type"]) == ("user_error", "ZeroDivisionError")


def test_items_have_their_own_outcomes_and_seeds(language):
    source = "import random\ndef f(d): return 1 // d['x'], random.random()"
    items = [{"x": 1}, {"x": 0}, {"x": 1}]
    frame, _ = language.call(source, items, items=3)
    first, broken, third = frame["items"]
    assert broken["error_type"] == "ZeroDivisionError"
    a, b = skeleton.decode(first["value"]), skeleton.decode(third["value"])
    assert a[0] == b[0] == 1
    assert a[1] != b[1]


def test_wrong_number_of_items_is_refused(language):
    frame, _ = language.call("def f(d): pass", [{}], items=2)
    assert frame["code"] == "STO-G110"


def test_prints_are_written_through_in_order(language):
    source = (
        "import sys\ndef f(d):\n    print('a', 1)\n    sys.stderr.write('b')\n    1/0"
    )
    _, output = language.call(source)
    assert output == "a 1\nb"


def test_warning_shows_no_path(language):
    source = "import warnings\ndef f(d): warnings.warn('careful')"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert language.call(source)[1] == "UserWarning: careful\n"


def test_printer_cuts_at_its_limit():
    buffer = StringIO()
    printer = TaskPrinter(buffer, limit=10)
    for _ in range(5):
        printer.print("12345")
    assert buffer.getvalue().startswith("12345\n1234\n[output cut")
    assert len(buffer.getvalue()) < 40


def test_calls_that_an_error_passed_are_told_innermost_last(language):
    source = "def g(x):\n    return 1 / x\n\ndef f(d):\n    return g(0)\n"
    frame, _ = language.call(source)
    assert frame["calls"] == "f:5\ng:2"


def test_only_the_innermost_calls_are_told(language):
    frame, _ = language.call(
        "def f(d, n=50):\n    return f(d, n - 1) if n else 1 / n\n"
    )
    assert frame["calls"] == "\n".join(["f:2"] * BOUNDS.calls)


def test_calls_of_libraries_are_not_told(language):
    frame, _ = language.call("import json\ndef f(d):\n    json.loads('{')\n")
    assert frame["calls"] == "f:3"


def test_error_text_is_bounded_and_free_of_paths(language):
    source = (
        "def f(d): raise OSError('no file /home/someone/secret/data.csv ' + 'x' * 9999)"
    )
    frame, _ = language.call(source)
    assert "someone" not in frame["error_text"]
    assert len(frame["error_text"]) <= 2000


def test_hostile_text_of_an_exception_is_contained(language):
    source = (
        "class E(Exception):\n    def __str__(self): raise ValueError('no')\n"
        "def f(d): raise E()"
    )
    frame, _ = language.call(source)
    assert frame["error_text"] == "(its text raised ValueError)"


def test_scrubbing_leaves_fractions_and_urls_alone():
    assert (
        scrub_paths("1/2 and a/b https://x.org/a/b") == "1/2 and a/b https://x.org/a/b"
    )
    assert scrub_paths("in '/usr/lib/x.py', line") == "in 'x.py', line"


def test_task_module_is_gone_afterwards(language):
    language.value("def f(d): return 1")
    assert TASK_MODULE not in sys.modules


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": "zz"},
        {"seed": "00" * 500},
        {"items": -1},
        {"items": True},
        {"now": "1"},
        {"blobs": ["x"]},
        {"entry": b"x"},
        {"extra": 1},
    ],
)
def test_malformed_request_is_a_refusal(language, changes):
    frame, _ = language.call("def f(d): pass", **changes)
    assert (frame["status"], frame["code"]) == ("refused", "STO-G120")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.binary(max_size=200))
def test_any_request_ends_in_a_frame(language, data):
    frame = run_call(language.runtime, data, StringIO())
    assert frame["status"] == "refused"


@pytest.mark.parametrize(
    "source",
    [
        "class MemoryError(Exception): pass\ndef f(d): raise MemoryError",
        "class Out(MemoryError): pass\ndef f(d): raise Out('of memory')",
        "class _ArrayMemoryError(ValueError): pass\ndef f(d): raise _ArrayMemoryError",
    ],
)
def test_error_that_is_named_like_the_limit_is_the_tasks_own(language, source):
    frame, _ = language.call(source)
    assert (frame["status"], frame["code"]) == ("user_error", "STO-G200")


@pytest.mark.parametrize(
    "raised",
    ["ValueError('\\ud800')", "SystemExit('a\\udfffb')", "OSError(1, '\\udc80')"],
)
def test_error_whose_text_cannot_travel_is_told_with_escapes(language, raised):
    frame, _ = language.call(f"def f(d): raise {raised}")
    assert (frame["status"], frame["code"]) == ("user_error", "STO-G200")
    assert "\\ud" in frame["error_text"]
    assert skeleton.decode(skeleton.encode(frame)) == frame


@given(st.text(st.characters(), max_size=40), st.sampled_from(["text", "repr"]))
def test_any_text_of_an_error_travels(text, how):
    error = ValueError(text if how == "text" else [text])
    failure = describe_exception(error)
    assert skeleton.encode([failure.error_type, failure.error_text])
