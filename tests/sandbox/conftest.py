"""Jails shared by the tests of this folder."""

import dataclasses
import enum
from pathlib import Path

import msgspec
import pytest

from stoilo.core import skeleton
from stoilo.core.levels import parse_level
from stoilo.core.limits import RunLimits
from stoilo.sandbox.capture_print import TextBuffer
from stoilo.sandbox.jobs.task import run_call
from stoilo.sandbox.jobs.validate import run_validator
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


@pytest.fixture(scope="session")
def shipped_levels():
    """Both levels as shipped, with their preload lists."""
    names = ("pure", "numeric")
    return [parse_level((LEVELS / f"{name}.toml").read_bytes()) for name in names]


class LanguageLayer:
    """Runs the jobs of the language layer in this process."""

    now = 1_700_000_000

    def __init__(self, runtime):
        self.runtime = runtime

    def request(self, source, argument=None, **changes):
        """Return an encoded task request."""
        fields = {
            "source": source,
            "entry": "",
            "arguments": skeleton.encode({} if argument is None else argument),
            "blobs": [],
            "seed": "07" * 32,
            "now": self.now,
            "items": 0,
        }
        return skeleton.encode(fields | changes)

    def call(self, source, argument=None, **changes):
        """Return the frame and what was printed."""
        output = TextBuffer()
        request = self.request(source, argument, **changes)
        return run_call(self.runtime, request, output), output.text

    def value(self, source, argument=None, **changes):
        """Return the value of a call that must succeed."""
        frame, _ = self.call(source, argument, **changes)
        assert frame["status"] == "ok", frame
        return skeleton.decode(frame["value"])

    def judge(self, source, op, *values, entry=""):
        """Return the frame of one validator call."""
        encoded = [skeleton.encode(value) for value in values]
        fields = {"source": source, "op": op, "entry": entry, "values": encoded}
        return run_validator(self.runtime, skeleton.encode(fields), TextBuffer())


@pytest.fixture
def language(runtimes):
    return LanguageLayer(runtimes["pure"])


@pytest.fixture
def numeric_language(runtimes):
    return LanguageLayer(runtimes["numeric"])
