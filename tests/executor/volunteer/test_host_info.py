from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.executor.volunteer.host_info import (
    FASTEST,
    SLOWEST,
    describe_host,
    measure_fpops,
    parse_processor,
)

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) CPU @ 2.60GHz
stepping\t: 7
flags\t\t: fpu sse2 avx2

processor\t: 1
vendor_id\t: Other
"""


def test_processor_is_told_as_boinc_tells_it():
    assert parse_processor(CPUINFO) == (
        "GenuineIntel",
        "Intel(R) Xeon(R) CPU @ 2.60GHz [Family 6 Model 85 Stepping 7]",
        "fpu sse2 avx2",
    )


def test_computer_is_described_and_not_named(tmp_path):
    host = describe_host(tmp_path)
    assert host.os_name.startswith("Linux")
    assert min(host.memory_bytes, host.disk_free_bytes) > 0
    assert host.domain_name == ""  # nobody's business


@given(st.text(max_size=300))
def test_any_text_is_read_within_bounds(text):
    assert all(len(part) <= 2048 for part in parse_processor(text))


def test_speed_is_within_bounds_on_any_clock():
    assert SLOWEST < measure_fpops() < FASTEST
    assert measure_fpops(lambda: 0.0) == FASTEST
    moments = iter(range(10**6))
    assert measure_fpops(lambda: next(moments) * 1000.0) == SLOWEST
