"""When and how much a volunteer computes; what a project sends can only lessen it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, UsageError
from stoilo.executor.volunteer.preferences import (
    GIB,
    OVERRIDE,
    SHARED,
    ComputingPreferences,
    PreferenceFiles,
    parse_preferences,
)

NOON = "<start_hour>12</start_hour><end_hour>13</end_hour>"


def files(tmp_path, hour=12.5, now=1e9, **texts):
    names = {"own": OVERRIDE, "shared": SHARED}
    for name, text in texts.items():
        (tmp_path / names[name]).write_text(text)
    return PreferenceFiles(tmp_path, lambda: hour, lambda: now)


def test_documents_of_boinc_are_read():
    text = (
        "<global_preferences><mod_time>5</mod_time><max_ncpus_pct>50.0</max_ncpus_pct>"
        "<run_on_batteries>1</run_on_batteries><venue name='x'><start_hour>1</start_hour>"
        "</venue><disk_min_free_gb>x</disk_min_free_gb></global_preferences>"
    )
    assert parse_preferences(text) == ComputingPreferences(5.0, 50.0)


@given(st.text(max_size=300))
def test_any_text_gives_preferences_or_our_error(text):
    try:
        assert isinstance(parse_preferences(text), ComputingPreferences)
    except StoiloError:
        pass


def test_hours_may_go_over_midnight():
    night = ComputingPreferences(start_hour=22, end_hour=6)
    assert [night.allows_hour(hour) for hour in (21, 22, 0, 5.9, 6)] == (
        [False, True, True, True, False]
    )
    assert ComputingPreferences(start_hour=3, end_hour=3).allows_hour(12)


@given(st.floats(0, 100) | st.none(), st.integers(1, 64), st.integers(1, 64))
def test_slots_are_never_more_than_asked_for_and_never_none(percent, asked, processors):
    found = ComputingPreferences(max_ncpus_pct=percent).slots(asked, processors)
    assert 1 <= found <= asked
    assert found <= max(1, processors)


def test_disk_bounds_lessen_the_room():
    free, total = 10 * GIB, 100 * GIB
    assert ComputingPreferences().room(GIB, free, total) == free
    assert ComputingPreferences(disk_min_free_gb=11).room(0, free, total) < 0
    assert ComputingPreferences(disk_max_used_gb=3).room(GIB, free, total) == 2 * GIB
    assert ComputingPreferences(disk_max_used_pct=1).room(2 * GIB, free, total) < 0


def test_own_file_counts_before_what_came_by_a_project(tmp_path):
    made = files(tmp_path, own=NOON, shared="<start_hour>0</start_hour>")
    assert made.allows_now()
    assert not files(tmp_path, hour=14.0).allows_now()
    assert files(tmp_path, hour=14.0, own="").allows_now()


def test_changed_file_counts_at_once(tmp_path):
    made = files(tmp_path, hour=14.0)
    assert made.allows_now()
    files(tmp_path, own=NOON)
    assert not made.allows_now()


def test_newest_document_of_the_projects_is_kept_and_sent(tmp_path):
    made = files(tmp_path)
    made.learn("<mod_time>7</mod_time><max_ncpus_pct>25</max_ncpus_pct>")
    made.learn("<mod_time>6</mod_time><max_ncpus_pct>99</max_ncpus_pct>")
    assert made.in_force().max_ncpus_pct == 25
    assert made.text.startswith("<global_preferences>")
    assert "<mod_time>7</mod_time>" in made.text


def timed(mod_time, percent):
    return f"<mod_time>{mod_time}</mod_time><max_ncpus_pct>{percent}</max_ncpus_pct>"


def test_document_from_far_ahead_gives_way_to_every_other(tmp_path):
    made = files(tmp_path)
    made.learn(timed(10**12, 25))
    assert made.in_force().max_ncpus_pct == 25
    made.learn(timed(7, 50))
    made.learn(timed(10**12, 25))
    assert made.in_force().max_ncpus_pct == 50


def test_newest_document_counts_though_this_computers_clock_is_behind(tmp_path):
    made = files(tmp_path, now=0.0)
    for mod_time, percent in ((10**9, 25), (10**9 + 1, 50), (10**9, 75)):
        made.learn(timed(mod_time, percent))
    assert made.in_force().max_ncpus_pct == 50


@pytest.mark.parametrize("elements", ["", "<", "<max_ncpus_pct>1</max_ncpus_pct>"])
def test_document_without_a_time_or_sense_changes_nothing(tmp_path, elements):
    made = files(tmp_path)
    made.learn(elements)
    assert (made.in_force(), made.text) == (ComputingPreferences(), "")


def test_own_file_that_cannot_be_read_stops_everything(tmp_path):
    with pytest.raises(UsageError, match="STO-A060"):
        files(tmp_path, own="<global_preferences>")


def test_broken_document_of_a_project_restricts_nothing(tmp_path):
    assert files(tmp_path, shared="<").in_force() == ComputingPreferences()
