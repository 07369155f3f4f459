"""Assignment to a variable's attribute is direct for own instances and for nothing else."""

from io import StringIO

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.types import RunStatus
from stoilo.sandbox.process.channel import TaskRequest
from stoilo.sandbox.process.task_job import run_call

OWN = "class Job:\n    pass\n\ndef run(kwargs):\n    job = Job()\n"


def call(runtimes, source, level="pure"):
    request = TaskRequest(source, "run", skeleton.encode({}))
    return run_call(runtimes[level], request.encode(), StringIO())


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("job.n = 1\n    job.n += 2\n    return job.n", 3),
        ("job._n = 1\n    job._n -= 3\n    return job._n", -2),
        ("job.a, job.b = 1, 2\n    return job.a + job.b", 3),
        ("for job.i in range(4): pass\n    return job.i", 3),
        ("job.n = 1\n    del job.n\n    return hasattr(job, 'n')", False),
        ("return [setattr(job, 'n', i) or job.n for i in (1, 2)]", [1, 2]),
    ],
)
def test_own_instances_take_every_form(runtimes, body, value):
    frame = call(runtimes, f"{OWN}    {body}\n")
    assert skeleton.decode(frame["value"]) == value


@pytest.mark.parametrize(
    "body",
    [
        "import math\n    job = math\n    job.pi = 3",
        "import math\n    job = math.sin\n    job.name = 1",
        "job.n = 1\n    job = [].append\n    job.n = 1",
        "import re\n    job = re.compile('x')\n    job.flags = 1",
        "import dataclasses\n    job = dataclasses.field()\n    job.name = 'x'",
        "for job in (job, dict): job.n = 1",
        "job.__doc__ = 'x'",
    ],
)
def test_anything_else_is_refused_after_own_instances_were_let_through(runtimes, body):
    first = "job.warm = 1\n    job.warm = 2\n    "
    frame = call(runtimes, f"{OWN}    {first}{body}\n")
    assert frame["status"] != RunStatus.OK.value


def test_target_is_evaluated_once(runtimes):
    source = (
        "class Job:\n    n = 0\n\nseen = []\n"
        "def make(job):\n    seen.append(1)\n    return job\n\n"
        "def run(kwargs):\n    job = Job()\n    make(job).n += 1\n"
        "    job.n += len(seen)\n    return [job.n, len(seen)]\n"
    )
    frame = call(runtimes, source)
    assert skeleton.decode(frame["value"]) == [2, 1]
