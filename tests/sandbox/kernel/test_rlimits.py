"""The limits, set on a forked child and read back."""

import os
import resource

from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.types import RunLimits
from stoilo.sandbox.kernel import mechanisms


def in_child(work):
    """Run `work` in a fork; returns what it printed into a pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, repr(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


@settings(max_examples=15, deadline=None)
@given(
    cpu=st.integers(1, 10_000),
    memory=st.integers(1 << 28, 1 << 34),
    processes=st.none() | st.integers(0, 8),
)
def test_every_limit_is_hard_and_as_asked(cpu, memory, processes):
    limits = RunLimits(cpu_s=cpu, memory_bytes=memory)

    def work():
        mechanisms.apply_limits(
            limits, base_bytes=1 << 30, descriptors=64, processes=processes
        )
        return [
            resource.getrlimit(name)
            for name in (
                resource.RLIMIT_CPU,
                resource.RLIMIT_AS,
                resource.RLIMIT_NOFILE,
                resource.RLIMIT_CORE,
                resource.RLIMIT_FSIZE,
            )
        ]

    wanted = [(cpu, cpu + 1), (memory + (1 << 30),) * 2, (64, 64), (0, 0), (0, 0)]
    assert in_child(work) == repr(wanted)


def test_limit_is_never_raised_above_what_the_host_gives():
    def work():
        resource.setrlimit(resource.RLIMIT_CPU, (7, 7))
        mechanisms.apply_limits(
            RunLimits(cpu_s=100), base_bytes=1 << 33, descriptors=64, processes=None
        )
        return resource.getrlimit(resource.RLIMIT_CPU)

    assert in_child(work) == "(7, 7)"


def test_address_space_is_read_from_statm():
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        assert mechanisms.read_address_space(statm) > 1 << 20
    finally:
        os.close(statm)
