"""``init_data.xml``: tolerant, bounded, and believed no more than needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.boinc_slot import SlotInfo, parse_init_data

NAMES = (
    b"<app_init_data><app_name>pure</app_name><wu_name>t_1</wu_name>"
    b"<result_name>t_1_0</result_name>"
)
FULL = NAMES + (
    b"<client_pid>4711</client_pid>\n<wu_cpu_time>12.500000</wu_cpu_time>"
    b"<checkpoint_period>60.000000</checkpoint_period>"
    b"<fraction_done_start>0.250000</fraction_done_start>"
    b"<fraction_done_end>0.750000</fraction_done_end>"
    b"<rsc_disk_bound>1000000000.000000</rsc_disk_bound></app_init_data>"
)


def test_what_is_needed_is_read():
    info = parse_init_data(FULL)
    assert (info.client_pid, info.cpu_s, info.checkpoint_period_s) == (4711, 12.5, 60)
    assert (info.fraction_start, info.fraction_end) == (0.25, 0.75)
    assert info.slot_bytes == 10**9


def test_what_is_absent_has_the_clients_default():
    assert parse_init_data(NAMES) == SlotInfo("pure", "t_1", "t_1_0")


@pytest.mark.parametrize(
    "text",
    [
        b"<client_pid>-1</client_pid>",
        b"<client_pid>99999999999</client_pid>",
        b"<wu_cpu_time>1e99</wu_cpu_time>",
        b"<wu_cpu_time>nan</wu_cpu_time>",
        b"<checkpoint_period>-5</checkpoint_period>",
        b"<fraction_done_start>7</fraction_done_start>",
        b"<fraction_done_end>inf</fraction_done_end>",
        b"<rsc_disk_bound>1e19</rsc_disk_bound>",
        b"<client_pid>1",
    ],
)
def test_number_out_of_bounds_counts_as_absent(text):
    assert parse_init_data(NAMES + text) == SlotInfo("pure", "t_1", "t_1_0")


def test_end_below_the_start_is_the_start():
    start = b"<fraction_done_start>0.5</fraction_done_start>"
    end = b"<fraction_done_end>0.1</fraction_done_end>"
    info = parse_init_data(NAMES + start + end)
    assert (info.fraction_start, info.fraction_end) == (0.5, 0.5)


def test_preferences_of_a_server_set_nothing_but_preferences():
    wishes = b"<project_preferences><client_pid>1</client_pid></project_preferences>"
    assert parse_init_data(wishes + FULL).client_pid == 4711


@given(st.binary(max_size=500))
def test_any_bytes_end_in_a_value_or_our_error(data):
    try:
        info = parse_init_data(NAMES + data)
    except TrustError as error:
        assert error.code == "STO-F038"
    else:
        assert 0 <= info.fraction_start <= info.fraction_end <= 1
