"""The auditors' text: committed, current, and true of the program."""

import errno
import platform
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoilo.cli.main import cli
from stoilo.policies.levels import load_level, load_levels
from stoilo.sandbox import seccomp
from stoilo.sandbox.argument_filters import ARGUMENT_FILTERS
from stoilo.sandbox.bpf import ARCHITECTURES, evaluate
from stoilo.sandbox.filter_text import find_libseccomp_version, render_filter

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "filters"
LEVELS = [level.name for level in load_levels()]
HERE = next(a for a, m in ARCHITECTURES.items() if m == platform.machine())
ALLOW, STOP, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000
LISTING = "\nThe program on "


def read_committed(level):
    return (FOLDER / f"{level}.txt").read_text()


@pytest.mark.parametrize("level", LEVELS)
def test_committed_words_are_those_of_the_level(level):
    words = render_filter(load_level(level)).partition(LISTING)[0]
    assert read_committed(level).partition(LISTING)[0] == words


@pytest.mark.parametrize("level", LEVELS)
def test_committed_listing_is_the_program_that_children_load(level):
    committed = read_committed(level).partition(LISTING)[2]
    mine = f"{platform.machine()}, by libseccomp {find_libseccomp_version()}\n"
    if not committed.startswith(mine):
        pytest.skip("another libseccomp or machine orders the same rules differently")
    assert committed == render_filter(load_level(level)).partition(LISTING)[2]


def test_no_committed_text_is_left_over():
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(LEVELS)


def read_words(text, heading):
    """Return the names in the indented block below `heading`."""
    block = text.partition(heading)[2].partition("\n\n")[0]
    return set(re.findall(r"\b[a-z][a-z0-9_]+\b", block))


@pytest.mark.parametrize("level", LEVELS)
def test_words_say_of_every_call_what_the_program_does(level):
    text = read_committed(level)
    rules = load_level(level).syscalls
    program = seccomp.build_filter(rules, threads=False)
    free = read_words(text, "Let through with any arguments:")
    refused = {
        call: REFUSE | getattr(errno, name)
        for name, calls in rules.errno.items()
        for call in calls
    }
    assert read_words(text, "without effect:") == set(refused)
    checked = {*rules.guarded, "sendmsg"}
    for number in range(600):
        call = seccomp.name_syscall(number)
        if call in checked:
            continue
        for arguments in ((0,) * 6, (2**64 - 1,) * 6, (5, 6, 7, 8, 9, 10)):
            expected = ALLOW if call in free else refused.get(call, STOP)
            assert evaluate(program, HERE, number, arguments) == expected, call


@pytest.mark.parametrize("level", LEVELS)
def test_every_checked_call_has_its_words(level):
    text = read_committed(level)
    for call in load_level(level).syscalls.guarded:
        assert re.search(rf"^  {call} +", text, re.MULTILINE), call
        assert ARGUMENT_FILTERS[call].words in text


def test_command_prints_the_committed_text():
    words = ["sandbox", "filter", "--level", "pure"]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.stdout.startswith("System calls of level pure\n")
