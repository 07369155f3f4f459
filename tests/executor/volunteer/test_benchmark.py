from __future__ import annotations

import pytest

from stoilo.executor.volunteer.host_info import (
    FASTEST,
    NAME,
    SLOWEST,
    HostDescription,
    measure_fpops,
    read_benchmark,
)


def test_speed_is_measured_once_and_kept(tmp_path):
    measured = iter([2e9, 3e9])
    for _ in range(2):
        assert read_benchmark(tmp_path, lambda: next(measured)) == 2e9


@pytest.mark.parametrize("kept", [b"", b"{", b'{"fpops": 0}', b'{"fpops": 1e300}'])
def test_what_cannot_be_believed_is_measured_anew(tmp_path, kept):
    (tmp_path / NAME).write_bytes(kept)
    assert read_benchmark(tmp_path, lambda: 2e9) == 2e9


def test_speed_is_within_bounds_on_any_clock():
    assert SLOWEST < measure_fpops() < FASTEST
    assert measure_fpops(lambda: 0.0) == FASTEST
    moments = iter(range(10**6))
    assert measure_fpops(lambda: next(moments) * 1000.0) == SLOWEST


def test_computer_tells_its_speed(tmp_path):
    assert HostDescription(tmp_path).now().fpops == read_benchmark(tmp_path)
