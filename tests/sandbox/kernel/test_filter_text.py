"""The auditors' text: committed, current, and true of the program."""

import errno
import platform
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from stoilo.cli.main import cli
from stoilo.core.levels import load_levels
from stoilo.policies.levels import load_level
from stoilo.sandbox.kernel import filters
from stoilo.sandbox.kernel.filter_text import (
    HANDOVER,
    FilterAudit,
    audit_level,
    render_filter,
)
from stoilo.sandbox.kernel.filters import ARGUMENT_FILTERS, load_own_calls
from tests.support.bpf import ARCHITECTURES, evaluate

FOLDER = Path(__file__).parents[3] / "docs" / "reference" / "filters"
LEVELS = [level.name for level in load_levels()]
HERE = next(a for a, m in ARCHITECTURES.items() if m == platform.machine())
ALLOW, STOP, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000


def read_committed(level):
    return (FOLDER / f"{level}.txt").read_text()


@pytest.mark.parametrize("level", LEVELS)
def test_committed_text_is_that_of_the_level(level):
    assert read_committed(level) == render_filter(load_level(level))


def test_no_committed_text_is_left_over():
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(LEVELS)


def read_words(text, heading):
    """Return the names at the lines' beginnings in the block below `heading`."""
    block = text.partition(heading)[2].partition("\n\n")[0]
    return set(re.findall(r"^  ([a-z][a-z0-9_]+) ", block, re.MULTILINE))


@pytest.mark.parametrize("level", LEVELS)
def test_words_say_of_every_call_what_the_program_does(level):
    text = read_committed(level)
    rules = load_level(level).syscalls
    program = filters.build_filter(rules, threads=False)
    free = read_words(text, "Let through with any arguments:")
    refused = {
        call: REFUSE | getattr(errno, name)
        for name, calls in rules.errno.items()
        for call in calls
    }
    assert read_words(text, "without effect:") == set(refused)
    checked = {*rules.guarded, "sendmsg"}
    for number in range(600):
        call = filters.name_syscall(number)
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
    words = ["policy", "show", "pure", "--system-calls"]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.stdout.startswith(read_committed("pure"))
    assert '# filter for syscall "openat"' in result.stdout


def find_unexplained(rules):
    """Return calls without a reason and reasons without a call."""
    refused = [call for calls in rules.errno.values() for call in calls]
    calls = {*rules.allow, *rules.guarded, *refused, HANDOVER}
    said = {call for call, why in rules.reasons.items() if len(why.split()) > 1}
    return calls ^ (said | (rules.reasons.keys() - calls))


@pytest.mark.parametrize("level", LEVELS)
def test_every_call_has_a_reason_and_every_reason_a_call(level):
    assert find_unexplained(load_level(level).syscalls) == set()


@pytest.mark.parametrize("change", [{"brk": ""}, {"openat": "why"}, {"ptrace": "a b"}])
def test_control_lost_and_left_over_reasons_are_seen(change):
    rules = load_level("pure").syscalls
    changed = msgspec.structs.replace(rules, reasons=rules.reasons | change)
    assert find_unexplained(changed) == set(change)


def test_control_new_call_without_a_reason_is_seen():
    rules = load_level("numeric").syscalls
    wider = msgspec.structs.replace(rules, allow=(*rules.allow, "sync"))
    assert find_unexplained(wider) == {"sync"}


@pytest.mark.parametrize("calls", [load_own_calls().zygote, load_own_calls().waiter])
def test_every_own_call_has_a_reason(calls):
    assert {call for call, one in calls.items() if len(one.reason.split()) < 2} == set()
    assert all(
        bool(one.words) == bool(one.values or one.check) for one in calls.values()
    )


@pytest.mark.parametrize("level", LEVELS)
def test_zygote_opens_nothing_that_the_audit_does_not_name(level):
    rules = load_level(level)
    audit = audit_level(rules)
    named = {one.call for one in (*audit.zygote, *audit.runs) if one.answer == "allow"}
    program = filters.build_zygote_filter(rules.syscalls, threads=True)
    found = {
        filters.name_syscall(number)
        for number in range(600)
        for first in (0, 1, 4, 0x3D0F00)
        if evaluate(program, HERE, number, (first,)) == ALLOW
    }
    assert found <= named
    assert {"wait4", "clone", "brk"} <= found


def test_command_prints_the_audit_as_json():
    words = ["policy", "show", "numeric", "--system-calls", "--json"]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    audit = msgspec.json.decode(result.stdout, type=FilterAudit)
    assert audit == audit_level(load_level("numeric"))
    assert all(one.reason for one in (*audit.runs, *audit.zygote, *audit.waiter))
