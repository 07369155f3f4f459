import shutil
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.transcript import (
    TRANSCRIPT_FILE,
    TranscriptLine,
    append_line,
    combine_transcripts,
    line_digest,
    parse_transcript,
    read_transcript,
    render_transcript,
    transcript_digest,
)


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """Three people sign on three machines, each on his own copy of one folder."""
    first = tmp_path / "first"
    first.mkdir()
    append_line(first, "init", 1, note="tea is ready")
    folders = [first]
    for number, name in enumerate(("ada", "bo", "cy")):
        copy = tmp_path / name
        shutil.copytree(first, copy)
        append_line(copy, "sign", 2 + number, who=name, key="ab" * 32)
        folders.append(copy)
    return folders[1:]


def test_line_names_the_line_before_it(tmp_path: Path) -> None:
    first = append_line(tmp_path, "init", 1)
    second = append_line(tmp_path, "sign", 2, who="ada")
    assert first.previous == ()
    assert second.previous == (line_digest(first),)
    assert read_transcript(tmp_path) == (first, second)


def test_folder_without_transcript_has_none(tmp_path: Path) -> None:
    assert read_transcript(tmp_path) == ()


def test_copies_come_together_in_any_order(copies: list[Path]) -> None:
    lines = [read_transcript(copy) for copy in copies]
    united = {combine_transcripts(order) for order in permutations(lines)}
    assert len(united) == 1
    assert [line.who for line in united.pop()] == ["", "ada", "bo", "cy"]


def test_next_line_names_every_end(copies: list[Path], tmp_path: Path) -> None:
    united = combine_transcripts([read_transcript(copy) for copy in copies])
    (tmp_path / TRANSCRIPT_FILE).write_bytes(render_transcript(united))
    last = append_line(tmp_path, "combine", 9)
    assert set(last.previous) == {line_digest(line) for line in united[1:]}


def test_combining_twice_changes_nothing(copies: list[Path]) -> None:
    once = combine_transcripts([read_transcript(copy) for copy in copies])
    again = combine_transcripts([once, read_transcript(copies[0]), once])
    assert transcript_digest(again) == transcript_digest(once)


def test_transcripts_of_two_ceremonies_do_not_mix(
    copies: list[Path], tmp_path: Path
) -> None:
    other = append_line(tmp_path, "init", 7)
    with pytest.raises(TrustError, match="STO-K077"):
        combine_transcripts([read_transcript(copies[0]), (other,)])


def test_combining_without_the_beginning_is_refused(copies: list[Path]) -> None:
    with pytest.raises(TrustError, match="STO-K077"):
        combine_transcripts([read_transcript(copies[0])[1:]])


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
    with pytest.raises(TrustError, match="STO-K077"):
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
    with pytest.raises(TrustError, match="STO-K077"):
        parse_transcript(render_transcript([line, line]))


def test_cut_last_line_is_refused() -> None:
    with pytest.raises(TrustError, match="STO-K077"):
        parse_transcript(render_transcript(history(2))[:-1])


def test_damaged_transcript_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / TRANSCRIPT_FILE).write_bytes(b"{}\n")
    with pytest.raises(TrustError, match="STO-K077"):
        append_line(tmp_path, "sign", 1)
    assert (tmp_path / TRANSCRIPT_FILE).read_bytes() == b"{}\n"
