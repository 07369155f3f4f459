from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.transcript import (
    TranscriptLine,
    add_line,
    combine_transcripts,
    line_digest,
    parse_transcript,
    render_transcript,
)


@pytest.fixture
def copies() -> list[bytes]:
    """Three people sign on three machines, each on his own copy of one folder."""
    first = add_line(b"", "init", 1, note="tea is ready")
    people = enumerate(("ada", "bo", "cy"))
    return [
        add_line(first, "sign", 2 + at, who=who, key="ab" * 32) for at, who in people
    ]


def test_line_names_the_line_before_it() -> None:
    first = add_line(b"", "init", 1)
    one, two = parse_transcript(add_line(first, "sign", 2, who="ada"))
    assert one.previous == ()
    assert two.previous == (line_digest(one),)
    assert parse_transcript(first) == (one,)


def test_folder_without_transcript_has_none() -> None:
    assert parse_transcript(b"") == ()


def test_copies_come_together_in_any_order(copies: list[bytes]) -> None:
    united = {combine_transcripts(order) for order in permutations(copies)}
    assert len(united) == 1
    assert [line.who for line in parse_transcript(united.pop())] == [
        *("", "ada", "bo", "cy")
    ]


def test_next_line_names_every_end(copies: list[bytes]) -> None:
    united = combine_transcripts(copies)
    last = parse_transcript(add_line(united, "combine", 9))[-1]
    ends = parse_transcript(united)[1:]
    assert set(last.previous) == {line_digest(line) for line in ends}


def test_combining_twice_changes_nothing(copies: list[bytes]) -> None:
    once = combine_transcripts(copies)
    assert combine_transcripts([once, copies[0], once]) == once


def test_transcripts_of_two_ceremonies_do_not_mix(copies: list[bytes]) -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        combine_transcripts([copies[0], add_line(b"", "init", 7)])


def test_combining_without_the_beginning_is_refused(copies: list[bytes]) -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        combine_transcripts([copies[0].partition(b"\n")[2]])


def history(count: int) -> list[TranscriptLine]:
    lines: list[TranscriptLine] = []
    for number in range(count):
        before = (line_digest(lines[-1]),) if lines else ()
        lines.append(TranscriptLine(act="note", time=number, previous=before))
    return lines


@given(st.integers(2, 6), st.data())
def test_removed_line_shows_unless_it_was_the_last(count: int, data) -> None:
    lines = history(count)
    del lines[data.draw(st.integers(0, count - 2))]
    with pytest.raises(TrustError, match="STO-K050"):
        parse_transcript(render_transcript(lines))


@given(st.data())
def test_changed_byte_shows_unless_in_the_last_line(data) -> None:
    text = render_transcript(history(4))
    end = text.rstrip(b"\n").rindex(b"\n")
    at = data.draw(st.integers(0, end))
    flip = data.draw(st.integers(1, 255))
    with pytest.raises(TrustError):
        parse_transcript(text[:at] + bytes([text[at] ^ flip]) + text[at + 1 :])


@given(st.binary(max_size=400))
def test_any_bytes_are_a_transcript_or_our_error(data: bytes) -> None:
    try:
        lines = parse_transcript(data)
    except TrustError:
        return
    assert render_transcript(lines) == data


def test_line_said_twice_is_refused() -> None:
    line = history(1)[0]
    with pytest.raises(TrustError, match="STO-K050"):
        parse_transcript(render_transcript([line, line]))


def test_cut_last_line_is_refused() -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        parse_transcript(render_transcript(history(2))[:-1])


def test_damaged_transcript_gets_no_further_line() -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        add_line(b"{}\n", "sign", 1)
