from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoilo.executor.volunteer.host_info import (
    HostDescription,
    describe_host,
    parse_meminfo,
    parse_os_release,
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


def test_memory_and_system_are_read():
    assert parse_meminfo("MemTotal:       1024 kB\nMemFree: 5 kB\n") == 1024 * 1024
    text = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\n'
    assert parse_os_release(text) == ("Debian", "Debian GNU/Linux 12 (bookworm)")


def test_computer_that_tells_nothing_is_described_all_the_same(tmp_path):
    host = describe_host(tmp_path, system=tmp_path)
    assert (host.vendor, host.memory_bytes, host.os_name) == ("", 0.0, "Linux")
    assert host.disk_free_bytes > 0
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
    assert parse_meminfo(text) >= 0
    assert all(len(part) <= 200 for part in parse_os_release(text))
