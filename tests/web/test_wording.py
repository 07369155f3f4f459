import pytest

from stoilo.audit.format.facts import show_time
from stoilo.web.wording import (
    render_amount,
    render_bytes,
    render_seconds,
    render_time_attribute,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1536, "1.5 KiB"),
        (512 << 20, "512 MiB"),
        (1 << 30, "1 GiB"),
    ],
)
def test_size_has_a_unit(count, text):
    assert render_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 s"),
        (60, "60 s"),
        (90, "90 s"),
        (300, "5 min"),
        (7200, "2 hours"),
        (86_400, "1 day"),
    ],
)
def test_time_span_is_readable(count, text):
    assert render_seconds(count) == text


def test_plural_of_copy_is_copies():
    assert [render_amount(n, "copy") for n in (1, 2)] == ["1 copy", "2 copies"]


def test_time_is_utc_and_machine_readable():
    assert show_time(0) == "1970-01-01 00:00:00 UTC"
    assert render_time_attribute(0) == "1970-01-01T00:00:00Z"


def test_time_past_every_calendar_is_a_number():
    assert show_time(2**60) == f"{2**60} s since 1970"
    assert render_time_attribute(2**60) == ""
