"""The runner sees what gets through; real jails, with a layer left out on purpose."""

import dataclasses
from pathlib import Path

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.levels import load_levels
from stoilo.sandbox.process.channel import TASK_JOB
from stoilo.sandbox.process.report import JailReport, JailStatus
from stoilo.sandbox.suite.case import parse_case
from stoilo.sandbox.suite.control import Controls
from stoilo.sandbox.suite.report import Result
from stoilo.sandbox.suite.runner import CaseRunner, SuiteJails

READ = "def run(kwargs):\n    return open(kwargs['canary']).read()\n"


def make_case(program, *keys):
    lines = "".join(f"# {key}\n" for key in ('idea = "x"', *keys))
    return parse_case(f"# /// stoilo-case\n{lines}# ///\n{program}".encode(), "n")


@pytest.fixture(scope="module")
def runner():
    with SuiteJails(load_levels()[:1], ("ctypes",)) as jails, Controls() as controls:
        yield CaseRunner(jails, lambda _case, _level: (), controls)


class LeakyJail:
    """A jail that lets everything through: it answers what plain Python would."""

    def run(self, request, limits, wall_s=None):  # noqa: ARG002 - as a jail
        asked = skeleton.decode(request)
        arguments = skeleton.decode(asked["arguments"])
        value = skeleton.encode(Path(arguments["canary"]).read_text())
        frame = {"status": "ok", "value": value, "code": "", "layer": ""}
        return JailReport(JailStatus.FINISHED, frame=skeleton.encode(frame))


@dataclasses.dataclass
class LeakyJails:
    """Real jails, but for the tasks'."""

    real: SuiteJails

    def get(self, job, level, *mode):
        return LeakyJail() if job == TASK_JOB else self.real.get(job, level, *mode)

    def __getattr__(self, name):
        return getattr(self.real, name)


def test_attack_that_a_layer_stops_is_as_expected(runner):
    program = (
        "def run(k):\n    return getattr(len, '__se' 'lf__').open(k['canary']).read()\n"
    )
    report = runner.run(make_case(program, 'stopped_by = "language"'))
    assert report.result is Result.AS_EXPECTED, report.describe()
    assert [step.name for step in report.steps] == [
        *("control", "every layer", "kernel alone", "kernel alone, errno")
    ]


def test_value_with_the_token_is_seen_as_reached(runner):
    leaky = dataclasses.replace(runner, jails=LeakyJails(runner.jails))
    report = leaky.run(make_case(READ, 'stopped_by = "language"'))
    assert report.result is Result.REACHED
    assert "every layer at pure" in report.describe()


def test_control_that_reaches_nothing_is_told(runner):
    report = runner.run(
        make_case(
            "def run(k):\n    getattr(k, '__class' + '_')\n",
            'stopped_by = "language"',
            'goal = "inside"',
        )
    )
    assert report.result is Result.NO_CONTROL


def test_other_code_than_the_named_one_is_told(runner):
    program = "def run(k):\n    setattr(len, '__na' + 'me__', 'REACHED')\n"
    keys = ('stopped_by = "language"', 'code = "STO-G101"', 'control = "none"')
    report = runner.run(make_case(program, *keys, 'goal = "inside"'))
    assert (report.result, report.counted) == (Result.OTHERWISE, False)


def test_probe_that_the_kernel_layer_does_not_stop_is_reached(runner):
    program = "print('REACHED')\n"
    keys = ('run = "probe"', 'stopped_by = "kernel"', 'goal = "inside"')
    assert runner.run(make_case(program, *keys)).result is Result.REACHED


def test_program_that_never_tries_the_kernel_layer_is_told(runner):
    program = "def run(k):\n    getattr(k, '__no' + '__')\n    return open('x')\n"
    report = runner.run(make_case(program, 'stopped_by = "language"'))
    assert "denied by the kernel" in report.describe()


@pytest.mark.parametrize(
    ("program", "result"),
    [
        ("def run(k):\n    print(1)\n    return sum(range(9))\n", Result.AS_EXPECTED),
        ("def run(k):\n    return type(run).__name__\n", Result.AS_EXPECTED),
        ("def run(k):\n    return __name__\n", Result.OTHERWISE),
        ("def run(k):\n    raise ValueError\n", Result.OTHERWISE),
    ],
)
def test_benign_program_must_do_what_plain_cpython_does(runner, program, result):
    assert runner.run(make_case(program)).result is result


@pytest.mark.parametrize("key", ['level = "no such"', "limits = { luck = 1 }"])
def test_unknown_level_or_limit_is_a_usage_error(runner, key):
    with pytest.raises(Exception, match="STO-S040"):
        runner.run(make_case(READ, 'stopped_by = "language"', key))


class HalfLeakyJails:
    """Jails of two levels, of which only the wider one leaks."""

    def __init__(self, real):
        self.real = real

    def get(self, job, level, *mode):
        leaks = (job, level) == (TASK_JOB, "numeric")
        return LeakyJail() if leaks else self.real.get(job, level, *mode)

    def __getattr__(self, name):
        return getattr(self.real, name)


@pytest.mark.parametrize(
    ("key", "result"),
    [("wider = true", Result.REACHED), ("wider = false", Result.AS_EXPECTED)],
)
def test_wider_case_is_run_at_every_level_from_its_own_on(key, result):
    program = (
        "def run(k):\n    return getattr(len, '__se' 'lf__').open(k['canary']).read()\n"
    )
    with SuiteJails(load_levels()[:2], ("ctypes",)) as jails:
        report = CaseRunner(HalfLeakyJails(jails), lambda _case, _level: ()).run(
            make_case(program, 'stopped_by = "language"', key)
        )
    assert report.result is result, report.describe()
    assert {step.level for step in report.steps} >= {"pure"}


def test_benign_wider_case_is_compared_at_each_level(runner):
    two = SuiteJails(load_levels()[:2], ())
    with two:
        wide = dataclasses.replace(runner, jails=two)
        report = wide.run(make_case("def run(k):\n    return 1\n", "wider = true"))
    compared = [step.level for step in report.steps if step.name == "plain CPython"]
    assert compared == ["pure", "numeric"]


def test_case_that_imports_a_described_library_runs_with_it():
    program = (
        "from scipy import linalg\ndef run(kwargs):\n    return linalg.det([[2.0]])\n"
    )
    case = make_case(program, 'level = "numeric"')
    with SuiteJails(load_levels()[:2], ()) as jails:
        report = CaseRunner(jails, lambda _case, _level: ()).run(case)
    assert [step.held for step in report.steps] == [True]
