"""Bombs end inside the jail, each with the code of the limit that it meets.

Time and memory of each are printed (``pytest -s``). The gate, which refuses most of these
texts earlier, is not asked here.
"""

import dataclasses
import itertools
import sys

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import MIB, RunLayer, RunLimits, RunStatus
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

LIMITS = RunLimits(
    cpu_s=1, wall_s=60, memory_bytes=160 * MIB, result_bytes=MIB, output_bytes=65536
)


def task(body):
    return f"def run(kwargs):\n    {body}\n"


def nested_finally(depth):
    text = ""
    for level in range(depth):
        pad = "    " * (level + 1)
        text += f"{pad}try:\n{pad}    x = {level}\n{pad}finally:\n"
    return f"def run(kwargs):\n{text}{'    ' * (depth + 1)}x = 0\n"


def exits_through_finally(exits, size):
    leave = "".join("            if kwargs: return 1\n" for _ in range(exits))
    clean = "".join("            x = 1\n" for _ in range(size))
    return (
        "def run(kwargs):\n    while True:\n        try:\n"
        f"{leave}        finally:\n{clean}            pass\n"
    )


REFUSED = {
    "nested finally": (nested_finally(18), "STO-P027"),
    "exits through finally": (exits_through_finally(2000, 2000), "STO-P027"),
    "deep brackets": ("x = " + "[" * 150 + "]" * 150, "STO-P022"),
    "more brackets than the parser takes": ("x = " + "[" * 1000, "STO-P023"),
    "long sum": ("x = 1" + "+1" * 40_000, "STO-P022"),
    "long chain of attributes": ("x = a" + ".b" * 30_000, "STO-P022"),
    "long elif": ("if 1: pass\n" + "elif 1: pass\n" * 5000, "STO-P022"),
    "deep indentation": (
        "\n".join(" " * n + "if 1:" for n in range(99))
        + "\n"
        + " " * 99
        + "[" * 30
        + "]" * 30,
        "STO-P022",
    ),
    "minus signs": ("x = " + "-" * 50_000 + "1", "STO-P022"),
    "nested f-strings": (
        "x = " + "f'{" * 80 + "1" + "}'" * 80,
        "STO-P023"
        if sys.version_info < (3, 12)
        else "STO-P022",  # PEP 701 nests quotes
    ),
    "many nodes": ("x = 1\n" * 40_000, "STO-P010"),
    "long text": ("x = '" + "a" * 100_000 + "'", "STO-P010"),
    "long bytes": ("x = b'" + "a" * 100_000 + "'", "STO-P010"),
    "large hexadecimal number": ("x = 0x" + "f" * 100_000, "STO-P010"),
    "large decimal number": ("x = " + "9" * 100_000, "STO-P023"),
    "long source": ("#" * 300_000, "STO-P022"),
}

KILLED = {
    "huge power": (task("return 9 ** 9 ** 9 % 10"), "cpu_s"),
    "huge shift": (task("return (1 << 10 ** 11) % 7"), "memory_bytes"),
    "huge factorial": (
        "import math\n" + task("return math.factorial(10 ** 7) % 7"),
        "cpu_s",
    ),
    "long text at run time": (task("return len('a' * 10 ** 10)"), "memory_bytes"),
    "long list": (task("return len([0] * 10 ** 9)"), "memory_bytes"),
    "long bytearray": (task("return len(bytearray(10 ** 10))"), "memory_bytes"),
    "wide format": (task("return len('{:>{}}'.format('x', 10 ** 9))"), "memory_bytes"),
    "doubling text": (task("x = 'a'\n    while 1: x += x"), "memory_bytes"),
    "regular expression": (
        "import re\n" + task("return re.match('(a+)+$', 'a' * 40 + 'b')"),
        "cpu_s",
    ),
    "long range": (task("return sum(range(10 ** 12))"), "cpu_s"),
    "endless loop in C": (
        "import itertools\n" + task("return max(itertools.repeat(1))"),
        "cpu_s",
    ),
    "endless decorator": (
        "@(lambda f: sum(range(10 ** 12)))\n" + task("return 1"),
        "cpu_s",
    ),
    "printing": (task("while 1: print('a' * 1000)"), "output_bytes"),
    "large result": (task("return 'a' * 10 ** 7"), "result_bytes"),
    "swallowed memory errors": (
        task(
            "kept = []\n    while 1:\n        try: kept.append('a' * 10 ** 8)\n"
            "        except MemoryError: pass"
        ),
        "cpu_s",
    ),
}
CODES = {
    "cpu_s": "STO-S011",
    "memory_bytes": "STO-S013",
    "output_bytes": "STO-S014",
    "result_bytes": "STO-S014",
}


@pytest.fixture(scope="module")
def jail(pure_level):
    with Jail(pure_level, TASK_JOB) as warm:
        yield warm


@pytest.fixture(scope="module")
def pure_level(shipped_levels):
    return shipped_levels[0]


def detonate(jail, name, source):
    request = TaskRequest(source, "", skeleton.encode({}))
    outcome = run_task(jail, request, LIMITS)
    usage = outcome.usage
    print(
        f"{name:36} {outcome.code} {usage.cpu_s:6.2f} s "
        f"{usage.peak_memory_bytes / MIB:6.0f} MiB"
    )
    return outcome


@pytest.mark.parametrize("name", REFUSED)
def test_source_bomb_is_refused_in_the_jail(jail, name):
    source, code = REFUSED[name]
    outcome = detonate(jail, name, source)
    assert (outcome.status, outcome.layer) == (RunStatus.REFUSED, RunLayer.GATE)
    assert outcome.code == code, outcome.error


SIBLINGS = {
    "huge power": "big_power",
    "regular expression": "regex_backtracking",
    "long range": "sum_range",
    "endless loop in C": "exhaust_iterator",
    "endless decorator": "decorator_that_loops",
    "swallowed memory errors": "swallow_memory_error_in_task",
}
"""Cases of tests/attack/cases/limits that burn the same second: these are slow."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SIBLINGS)) for n in KILLED],
)
def test_bomb_that_runs_ends_at_its_limit(jail, name):
    source, limit = KILLED[name]
    outcome = detonate(jail, name, source)
    assert (outcome.status, outcome.limit) == (RunStatus.KILLED, limit), outcome.error
    assert (outcome.layer, outcome.code) == (RunLayer.LIMITS, CODES[limit])


def test_constants_are_not_computed_while_compiling(jail):
    towers = ("9 ** 9 ** 9", "'a' * 10 ** 10", "(0,) * 10 ** 9", "1 << 10 ** 11")
    source = "def never():\n" + "".join(f"    x = {text}\n" for text in towers)
    outcome = detonate(jail, "constants", source + task("return 'compiled'"))
    assert skeleton.decode(outcome.value) == "compiled"


def test_endless_recursion_is_the_tasks_own_error(jail):
    nests = "a = []\n    for _ in range(10 ** 5): a = [a]\n    return "
    bodies = ("return run(kwargs)", nests + "repr(a)", nests + "a == [a]")
    for name, body in zip(("recursion", "repr", "comparison"), bodies, strict=True):
        outcome = detonate(jail, name, task(body))
        assert outcome.status is RunStatus.USER_ERROR
        assert "RecursionError" in outcome.error


def test_recursion_in_native_code_ends_with_its_own_code(jail):
    body = (
        "it = iter(())\n    for _ in range(3 * 10 ** 5): it = itertools.chain(it)\n"
        "    return list(it)"
    )
    outcome = detonate(jail, "native recursion", "import itertools\n" + task(body))
    assert outcome.code in {"STO-S020", "STO-S013"}


def test_bombs_do_not_wear_the_jail_out(jail):
    outcome = detonate(jail, "after the bombs", task("return 1"))
    assert outcome.status is RunStatus.OK


def test_sleeper_ends_at_the_wall_limit(jail):
    request = TaskRequest(
        "import time\n" + task("time.sleep(60)"), "", skeleton.encode({})
    )
    outcome = run_task(jail, request, dataclasses.replace(LIMITS, wall_s=1))
    assert (outcome.limit, outcome.code) == ("wall_s", "STO-S011")


def test_names_of_bombs_are_unique():
    assert len(set(itertools.chain(REFUSED, KILLED))) == len(REFUSED) + len(KILLED)
