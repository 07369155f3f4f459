from __future__ import annotations

from stoilo.executor.volunteer.host_info import (
    FASTEST,
    SLOWEST,
    HostDescription,
    measure_fpops,
)


def test_speed_is_within_bounds_on_any_clock():
    assert SLOWEST < measure_fpops() < FASTEST
    assert measure_fpops(lambda: 0.0) == FASTEST
    moments = iter(range(10**6))
    assert measure_fpops(lambda: next(moments) * 1000.0) == SLOWEST


def test_computer_tells_its_speed_as_it_was_measured_once(tmp_path):
    description = HostDescription(tmp_path, clock=iter([0.0, 0.0, 1e6, 1e6]).__next__)
    assert description.now().fpops == description.now().fpops
