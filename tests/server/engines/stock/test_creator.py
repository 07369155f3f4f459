from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.core.types import Redundancy
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.creator import (
    BATCH,
    LINE_BYTES,
    Job,
    batches,
    call_arguments,
    stdin_line,
)
from stoilo.server.engines.stock.input_files import (
    InputSlot,
    input_template,
    result_template,
)
from stoilo.server.engines.stock.outcomes import kind_of
from stoilo.server.engines.stock.project.boinc_tables import ErrorMask
from tests.support.engine import make_spec


def job(row, redundancy=Redundancy()):  # noqa: B008 - frozen
    return Job(row, f"w_{row}", call_arguments("pure", redundancy), "a line")


def line_of(files):
    return stdin_line(make_spec("w_1"), ("in", "out"), files)


def test_each_redundancy_has_calls_of_its_own():
    single = Redundancy(min_quorum=1, target_results=1)
    made = list(batches([job(1), job(2, single), job(3), job(4, single)]))
    assert [[one.row for one in members] for members in made] == [[2, 4], [1, 3]]


def test_long_lists_are_cut():
    made = list(batches(map(job, range(BATCH + 5))))
    assert [len(members) for members in made] == [BATCH, 5]


def test_target_above_the_bound_of_successes_raises_that_bound():
    words = call_arguments("pure", Redundancy(target_results=3, max_success=2)).split()
    assert words[words.index("--max_success_results") + 1] == "3"


def test_quorum_is_said_on_the_command_line_and_in_no_template():
    words = call_arguments("pure", Redundancy()).split()
    assert words[words.index("--min_quorum") + 1] == "2"
    template = input_template(make_spec("w_1"), (InputSlot("arguments", sticky=True),))
    for word in ("quorum", "nresults", "results", "delay_bound"):
        assert word not in template.text
    assert len(f"templates/{result_template(10).name}") <= 63


def test_templates_of_about_the_same_cost_are_one():
    slots = (InputSlot("arguments", sticky=False),)
    spec = make_spec("w_1")
    names = {
        input_template(replace(spec, fpops_est=cost), slots).name
        for cost in (1.01e9, 1.02e9, 1.1e9)
    }
    assert len(names) == 1
    assert input_template(spec, slots).text.count("<no_delete/>") == 1


@pytest.mark.parametrize("files", [("f" * 60,) * 70, ("f",) * 99, ("a b",), ("a'b",)])
def test_line_that_create_work_would_misread_is_refused(files):
    with pytest.raises(UsageError, match="STO-B004"):
        line_of(files)


@given(
    st.lists(st.from_regex(r"[A-Za-z0-9_.-]{1,60}", fullmatch=True), max_size=60),
)
def test_line_is_read_as_it_was_meant_or_refused(files):
    try:
        line = line_of(files)
    except UsageError:
        return
    assert len(line.encode()) < LINE_BYTES + 1
    assert shlex.split(line)[6:] == files


@pytest.mark.parametrize(
    ("mask", "frozen", "kind"),
    [
        (8, False, OutcomeKind.TOO_MANY_TOTAL),
        (10, False, OutcomeKind.TOO_MANY_ERRORS),
        (24, False, OutcomeKind.CANCELLED),
        (16, True, OutcomeKind.CANCELLED),
        (4, False, OutcomeKind.TOO_MANY_SUCCESS),
        (8, True, OutcomeKind.ADMISSION_ENDED),
        (1, False, OutcomeKind.TOO_MANY_ERRORS),
        (2, True, OutcomeKind.TOO_MANY_ERRORS),
    ],
)
def test_masks_seen_on_a_live_server_mean(mask, frozen, kind):
    assert kind_of(mask, frozen=frozen) is kind


@given(st.integers(1, 2**31), st.booleans())
def test_any_mask_is_an_end(mask, frozen):
    assert kind_of(mask, frozen=frozen) is not OutcomeKind.CANONICAL
    assert sum(ErrorMask) == 63
