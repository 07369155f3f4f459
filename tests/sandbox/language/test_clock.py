import datetime as dt

import pytest

from stoilo.core.codec import skeleton
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.run import run_source

ADMITTED = 1_700_000_000
WHEN = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a task's argument
ROADS = (
    'kwargs["t"].now()',
    'kwargs["t"].utcnow()',
    'kwargs["t"].today()',
    '(kwargs["t"] + timedelta(1)).now()',
    'datetime.combine(kwargs["t"].date().today(), time(22, 13, 20))',
    "Own(2026, 1, 2).now()",
    'getattr(kwargs["t"], "now")()',
)
SOURCE = """
from datetime import datetime, time, timedelta


class Own(datetime):
    pass


def run(kwargs):
    return [str({road}) for _ in range(2)]
"""


@pytest.mark.parametrize("road", ROADS)
def test_clock_of_every_instance_is_the_admissions(road):
    source = SOURCE.replace("{road}", road)
    outcome = run_source(source, None, {"t": WHEN}, load_level("pure"), now=ADMITTED)
    assert skeleton.decode(outcome.value) == ["2023-11-14 22:13:20"] * 2


def test_clock_of_this_process_goes_on():
    assert WHEN.now() > WHEN
