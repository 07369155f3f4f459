"""Whatever a source is made of, what is said about it is bounded, and can be read."""

import json

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoilo.cli.main import cli
from stoilo.core import types
from stoilo.core.errors import StoiloError
from stoilo.core.types import TEXT_BYTES, TEXT_CHARS, Finding, Severity, bound_text
from stoilo.policies import wire
from stoilo.policies.gate import GateRequest
from stoilo.policies.render import render_json, render_sarif, render_text
from stoilo.policies.wire import (
    ANSWER_BYTES,
    answer_requests,
    parse_answer,
    render_requests,
)

SHOWN_BYTES = 4 << 20
LONGEST = "\ufdfa"
"""One character that Python reads as eighteen."""
LETTERS = LONGEST + "\ufdfb\u0430\u03bf\u1d00\U0001d41a\u4e00\u00aa\ufb03a_\u0660"
NAMES = st.builds(
    lambda head, times, tail: (head * times + tail)[:180],
    st.text(LETTERS, min_size=1, max_size=5),
    st.integers(1, 180),
    st.text(LETTERS, max_size=3),
)
LINES = st.sampled_from(
    [
        "def {}(): pass",
        "import {}",
        "from {} import {}",
        "x = y.{}",
        "x = '{}'",
        "class {}: pass",
        "x = f({}=1)",
        "{}",
        "#{}",
        "x = '\\ud800{}'",
        "def f(x): x.__{}__",
    ]
)
SOURCES = st.builds(
    lambda line, names, times: (
        "def task(d):\n    return 1\n"
        + "\n".join(line.format(name, name) for name in names * times)
    ),
    LINES,
    st.lists(NAMES, min_size=1, max_size=40),
    st.integers(1, 8),
)
MANY = "def f(d):\n    return 1\n" + "\n".join(
    f"def {LONGEST * 180}{chr(0x4E00 + n)}(): pass" for n in range(250)
)


@given(SOURCES | st.text(max_size=300))
@example(MANY)
def test_answer_about_any_source_is_bounded_and_believed(source):
    request = GateRequest(source=source.encode("utf-8", "replace"), level="pure")
    answer = answer_requests(render_requests([request]))
    assert len(answer) <= ANSWER_BYTES
    verdict = parse_answer(answer, request)
    shown = render_json(verdict)
    assert json.loads(shown)["verdict"] in {"admitted", "refused"}
    json.loads(render_sarif(verdict, request.source, "task.py"))
    text = render_text(verdict, request.source, "task.py")
    assert max(len(shown), len(text.encode())) <= SHOWN_BYTES


@given(st.text(max_size=200_000))
@settings(max_examples=30, deadline=None)
def test_any_entry_and_level_end_in_a_bounded_answer(word):
    for fields in ({"entry": word}, {"level": word}):
        try:
            request = GateRequest(source=b"def f(d): pass\n", **fields)
            answer = answer_requests(render_requests([request]))
        except StoiloError:
            continue
        assert len(answer) <= ANSWER_BYTES


@pytest.mark.parametrize("source", [MANY, "\ufdfa\n" * 300, "\x00", "def f(d): pass"])
@pytest.mark.parametrize("output", ["json", "text", "sarif"])
def test_command_ends_in_admitted_or_refused(tmp_path, source, output):
    path = tmp_path / "task.py"
    path.write_text(source)
    done = CliRunner().invoke(
        cli,
        ["policy", "check", str(path), "--format", output],
        standalone_mode=False,
    )
    assert done.return_value in {0, 3}
    assert len(done.stdout_bytes) <= SHOWN_BYTES
    if output != "text":
        json.loads(done.stdout)


@given(st.text(st.characters(), max_size=3000) | st.text("\x00\ud800\U0010ffff"))
def test_bounded_text_is_sound_and_says_as_much_as_it_may(text):
    short = bound_text(text)
    assert len(short) <= TEXT_CHARS
    assert len(msgspec.json.encode(short)) <= TEXT_BYTES
    assert short == text or "…" in short or "\\ud" in short


def test_finding_that_a_hostile_process_wrote_is_cut_where_it_is_read():
    wild = {"code": "x" * 99, "severity": "error", "message": "m" * 9999}
    wild |= dict.fromkeys(("line", "column", "end_line", "end_column"), 1)
    wild["hint"] = LONGEST * 9999
    read = msgspec.json.decode(msgspec.json.encode(wild), type=Finding)
    assert (len(read.code), len(read.message)) == (16, TEXT_CHARS)
    assert len(read.hint) <= TEXT_CHARS


def test_control_without_the_bound_the_answer_is_too_large(monkeypatch):
    for module in (types, wire):
        monkeypatch.setattr(module, "bound_text", lambda text: text)
    request = GateRequest(source=MANY.encode(), level="pure")
    answer = answer_requests(render_requests([request]))
    assert len(answer) > ANSWER_BYTES
    with pytest.raises(StoiloError, match="STO-P004"):
        parse_answer(answer, request)


@pytest.mark.parametrize("line", [0, -1, 1 << 31, 1 << 62])
def test_finding_at_no_place_is_not_believed(line):
    request = GateRequest(source=b"import os\n", level="pure")
    answer = json.loads(answer_requests(render_requests([request])))[0]
    answer["verdict"]["findings"][0] |= {"line": line, "end_line": line}
    with pytest.raises(StoiloError, match="STO-P004"):
        parse_answer(json.dumps([answer]).encode(), request)


def test_control_every_severity_survives():
    for severity in Severity:
        assert Finding("STO-P010", severity, 1, 1, 1, 1, "m", "h").message == "m"
