"""Jails shared by the tests of this folder."""

import dataclasses
import enum
from pathlib import Path

import msgspec
import pytest

from stoilo.core.levels import parse_level
from stoilo.core.limits import RunLimits
from stoilo.sandbox.loader import prepare_runtime
from stoilo.sandbox.run import PROBE_JOB, encode_probe, read_probe
from stoilo.sandbox.supervisor import Jail

LEVELS = Path(__file__).parents[2] / "stoilo" / "policies" / "levels"
LIMITS = RunLimits(
    cpu_s=5, wall_s=10, memory_bytes=256 << 20, result_bytes=1 << 20, output_bytes=8192
)


def load(name, *, preload=()):
    """Return a shipped level with another preload list."""
    level = parse_level((LEVELS / f"{name}.toml").read_bytes())
    return msgspec.structs.replace(level, preload=preload)


class Prober:
    """Runs programs in one warm jail and keeps the last report."""

    def __init__(self, jail):
        self.jail = jail
        self.report = None

    def __call__(self, source, *preload, wall_s=None, **limits):
        request = encode_probe(source, preload)
        chosen = dataclasses.replace(LIMITS, **limits)
        self.report = self.jail.run(request, chosen, wall_s)
        return read_probe(self.report)


@pytest.fixture(scope="session")
def pure():
    return load("pure")


@pytest.fixture(scope="session")
def numeric():
    return load("numeric")


@pytest.fixture(scope="module")
def probe(pure):
    preload = ("ctypes", "resource", "threading", "signal")
    with Jail(pure, PROBE_JOB, preload=preload) as jail:
        yield Prober(jail)


@pytest.fixture(scope="module")
def threads(numeric):
    preload = ("threading", "numpy", "ctypes")
    with Jail(numeric, PROBE_JOB, preload=preload) as jail:
        yield Prober(jail)


@pytest.fixture(scope="session")
def runtimes():
    """The language layer of both levels, in this process."""
    call = enum.EnumMeta.__call__
    yield {name: prepare_runtime(load(name)) for name in ("pure", "numeric")}
    enum.EnumMeta.__call__ = call
