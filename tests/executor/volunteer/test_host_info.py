from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.executor.volunteer.host_info import (
    HostDescription,
    describe_host,
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


def test_description_is_looked_up_again_after_a_while(tmp_path):
    now = [0.0]
    description = HostDescription(tmp_path, clock=lambda: now[0])
    first = description.now()
    now[0] = 599.0
    assert description.now() is first
    now[0] = 601.0
    assert description.now() is not first


@given(st.text(max_size=300))
def test_any_text_is_read_within_bounds(text):
    assert all(len(part) <= 2048 for part in parse_processor(text))
