from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.note import Note, NoteSignature, parse_note, render_note
from stoilo.audit.log.seen import open_seen
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.workunit import (
    Disposition,
    ResultHeader,
    largest_result,
    parse_result,
    parse_result_header,
    render_result,
    seen_checkpoint,
)
from tests.support.faulty_log import LogKey


def header(**changes):
    fields = {"result": "a_0", "workunit": "a", "disposition": Disposition.RAN}
    return ResultHeader(format="stoilo-result/1", **(fields | changes))


@given(st.binary(max_size=200), st.binary(max_size=200), st.text(max_size=50))
def test_result_file_round_trips(frame, output, message):
    try:
        data = render_result(header(message=message), frame, output)
    except UnicodeEncodeError:
        return  # a lone surrogate is no text
    parsed = parse_result(data)
    assert (parsed.frame, parsed.output) == (frame, output)
    assert parsed.header.message == message
    assert parse_result_header(data[:13_000]) == parsed.header
    assert len(data) <= largest_result(len(frame), len(output))


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_result_or_our_error(data):
    try:
        parse_result(data)
    except TrustError as error:
        assert error.code == "STO-X020"


GOOD = render_result(header(), b"frame", b"output")
RESUMED = render_result(header(resumed_at=7), b"frame", b"output")
BAD = {
    "empty": (b"", "STO-X020"),
    "no newline": (GOOD.replace(b"\n", b" "), "STO-X020"),
    "header too long": (b"{" + b" " * 13_000 + GOOD[1:], "STO-X020"),
    "spaces inside": (GOOD.replace(b'","', b'", "', 1), "STO-X020"),
    "duplicate key": (GOOD.replace(b"{", b'{"result":"b",', 1), "STO-X020"),
    "unknown key": (GOOD.replace(b"{", b'{"x":1,', 1), "STO-X020"),
    "other format": (GOOD.replace(b"result/1", b"result/3"), "STO-X020"),
    "version 2 without resuming": (GOOD.replace(b"result/1", b"result/2"), "STO-X020"),
    "version 1 with resuming": (RESUMED.replace(b"result/2", b"result/1"), "STO-X020"),
    "resumed before its start": (
        RESUMED.replace(b'"resumed_at":7', b'"resumed_at":-7'),
        "STO-X020",
    ),
    "resumed beyond all steps": (
        RESUMED.replace(b'"resumed_at":7', b'"resumed_at":9007199254740993'),
        "STO-X020",
    ),
    "resumed and refused": (RESUMED.replace(b'"ran"', b'"refused"'), "STO-X020"),
    "no object": (b"[]\n", "STO-X020"),
    "not utf-8": (GOOD.replace(b'"a_0"', b'"\xff"'), "STO-X020"),
    "cut": (GOOD[:-1], "STO-X020"),
    "longer": (GOOD + b"x", "STO-X020"),
    "negative length": (
        GOOD.replace(b'"frame_bytes":5', b'"frame_bytes":-1'),
        "STO-X020",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_result_file_is_refused(name):
    data, code = BAD[name]
    with pytest.raises(TrustError, match=code):
        parse_result(data)


def test_resumed_run_is_told_in_version_2_and_any_other_in_version_1():
    told = parse_result(RESUMED).header
    assert (told.format, told.resumed_at) == ("stoilo-result/2", 7)
    assert b"resumed" not in GOOD
    assert parse_result(GOOD).header.format == "stoilo-result/1"


def test_header_beyond_its_bound_is_not_written():
    with pytest.raises(TrustError, match="STO-X020"):
        render_result(header(message="x" * 13_000), b"", b"")


KEY = LogKey("log.test/t")
BODY = b"log.test/t\n1\n" + b"A" * 43 + b"=\n"


def many_cosignatures(count):
    """Return a note with `count` signatures as long as post-quantum ones."""
    own = parse_note(KEY.sign(BODY)).signatures
    large = NoteSignature("witness.test/pq", b"\1" * 4, b"\2" * 2428)
    return render_note(Note(BODY, (large,) * count + own))


def test_ordinary_note_is_sent_back_whole():
    note = many_cosignatures(1)
    assert seen_checkpoint(note).encode() == note


def test_longer_note_keeps_the_log_s_own_signature():
    short = seen_checkpoint(many_cosignatures(4))
    assert len(short) < 4096
    assert open_seen(short, KEY.policy).size == 1


def test_longest_checkpoint_fits_into_a_header():
    full = header(checkpoint="\n" * 4096, message="x" * 500, layers=("seccomp",) * 20)
    assert parse_result_header(render_result(full, b"", b"")).checkpoint == "\n" * 4096
