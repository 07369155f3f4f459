from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.sandbox.suite.case import (
    CASE_BYTES,
    Goal,
    Kind,
    Stop,
    find_cases,
    parse_case,
    read_case,
)

PROGRAM = "def run(kwargs):\n    return 1\n"


def write(*keys, program=PROGRAM, idea='idea = "x"'):
    lines = [f"# {key}\n" for key in (idea, *keys) if key]
    return f"# /// stoilo-case\n{''.join(lines)}# ///\n{program}"


def parse(*keys, **options):
    return parse_case(write(*keys, **options).encode(), "area/name")


def test_header_without_keys_is_a_benign_task():
    case = parse()
    header = case.header
    assert (header.run, header.stopped_by, header.goal) == (
        Kind.TASK,
        Stop.NONE,
        Goal.OUTSIDE,
    )
    assert case.benign
    assert case.program.decode() == write()


def test_header_may_follow_other_comments_and_a_byte_order_mark():
    data = ("\ufeff# a licence\n" + write('level = "numeric"')).encode()
    case = parse_case(data, "n")
    assert (case.header.level, case.program) == ("numeric", data)


@pytest.mark.parametrize(
    "keys",
    [
        ['other = "x"'],
        ['run = "shell"'],
        ['stopped_by = "luck"'],
        ["kwargs = 3"],
        ["idea = "],
        ['code = "STO-P023"'],
        ['stopped_by = "gate"', 'syscall = "open"'],
        ['stopped_by = "gate"', 'limit = "cpu_s"'],
        ['stopped_by = "validation"'],
        ['run = "check"', 'stopped_by = "kernel"'],
        ['first_python = "three"'],
        ['expand = { x = ["y", 100000000] }'],
        ["escaped = true", 'encoding = "no such"'],
    ],
)
def test_broken_header_is_a_usage_error(keys):
    with pytest.raises(UsageError, match="STO-S040"):
        parse(*keys)


@pytest.mark.parametrize(
    "text", ["", PROGRAM, write() + write(), "# /// stoilo-case\n"]
)
def test_file_without_exactly_one_header_is_a_usage_error(text):
    with pytest.raises(UsageError, match="STO-S040"):
        parse_case(text.encode(), "n")


def test_file_over_the_bound_is_a_usage_error():
    with pytest.raises(UsageError, match="over"):
        parse_case(b"#" * (CASE_BYTES + 1), "n")


def test_escaped_program_becomes_the_bytes_that_it_spells():
    case = parse(
        "escaped = true",
        'encoding = "latin-1"',
        program="\\xe9\\x00 \\\\n\\u0041\nstraight é",
    )
    assert case.program == "\xe9\0 \\nA\nstraight é".encode("latin-1")


def test_expanded_word_stands_for_its_text_many_times():
    case = parse('expand = { w = ["ab", 3] }', program="x = '@w@'\n")
    assert case.program == b"x = 'ababab'\n"


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: write(t).encode()))
def test_any_bytes_are_a_case_or_a_usage_error(data):
    try:
        assert parse_case(data, "n").name == "n"
    except UsageError as error:
        assert error.code == "STO-S040"


def test_cases_of_a_folder_are_found_below_it_without_hidden_ones(tmp_path: Path):
    for name in ("b.py", "a/c.py", "a/note.txt", ".hidden/d.py", "__pycache__/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(write())
    names = [read_case(path, tmp_path).name for path in find_cases(tmp_path)]
    assert names == ["a/c", "b"]
