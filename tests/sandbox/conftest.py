"""Jails shared by the tests of this folder."""

import copy
import dataclasses
import enum
import types
from io import StringIO

import msgspec
import pytest

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.types import RunLimits
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import prepare_runtime
from stoilo.sandbox.process.binder import TaskReferences
from stoilo.sandbox.process.channel import PROBE_JOB, TASK_JOB
from stoilo.sandbox.process.run import encode_probe, read_probe
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.process.task_job import run_call
from stoilo.sandbox.process.validate_job import run_validator

LIMITS = RunLimits(
    cpu_s=5, wall_s=10, memory_bytes=256 << 20, result_bytes=1 << 20, output_bytes=8192
)


def load(name, *, preload=()):
    """Return a shipped level with another preload list."""
    return msgspec.structs.replace(load_level(name), preload=preload)


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
    return [load_level(name) for name in ("pure", "numeric")]


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

    def call(self, source, argument=None, *, tell=None, **changes):
        """Return the frame and what was printed."""
        output = StringIO()
        request = self.request(source, argument, **changes)
        return run_call(self.runtime, request, output, tell), output.getvalue()

    def value(self, source, argument=None, **changes):
        """Return the value of a call that must succeed."""
        frame, _ = self.call(source, argument, **changes)
        assert frame["status"] == "ok", frame
        return skeleton.decode(frame["value"])

    def judge(self, source, op, *values, entry=""):
        """Return the frame of one validator call."""
        encoded = [skeleton.encode(value) for value in values]
        fields = {"source": source, "op": op, "entry": entry, "values": encoded}
        return run_validator(self.runtime, skeleton.encode(fields), StringIO())


@pytest.fixture
def language(runtimes):
    return LanguageLayer(runtimes["pure"])


@pytest.fixture
def numeric_language(runtimes):
    return LanguageLayer(runtimes["numeric"])


@pytest.fixture(scope="module")
def tensor_jail():
    with Jail(load_level("tensor"), TASK_JOB) as jail:
        yield jail


@pytest.fixture(scope="module")
def caches_of_torch(tmp_path_factory):
    """The optimisers of this process bring a compiler, which makes a folder for itself."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("inductor"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
        yield


@pytest.fixture(scope="module")
def binding(runtimes):
    """A binder over real torch classes and a class of a task, in this process."""
    import torch  # noqa: PLC0415 - most tests need no torch

    nn = torch.nn
    own = types.ModuleType("stoilo_task")
    for name, base in (("Net", nn.Module), ("Plain", object)):
        setattr(own, name, type(name, (base,), {"__module__": own.__name__}))
    facades = {"torch.nn": nn, "torch.optim": torch.optim}
    guards = copy.copy(runtimes["pure"].guards)
    guards._writable = load_level("tensor").writable
    runtime = types.SimpleNamespace(
        guards=guards, facades=types.SimpleNamespace(modules=facades)
    )
    return lambda node: from_node(node, TaskReferences(own, runtime))
