"""I7: two honest volunteers on unlike machines return the same bytes, live.

Both copies must agree by the default comparator at the first try; the hosts' environments
differ in hash seed, time zone, locale and thread counts.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

AT_ONCE = pb.RedundancyOptions(
    min_quorum=2,
    target_results=2,
    max_error=1,
    max_total=2,
    max_success=2,
    delay_bound_s=600,
)
HOSTS = (
    {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LANG": "C", "OMP_NUM_THREADS": "1"},
    {"PYTHONHASHSEED": "2", "TZ": "America/Lima", "LC_ALL": "de_DE", "HOME": "/tmp"},
)
PROGRAMS = {
    "random": "import random\ndef task(d):\n    return [random.random() for _ in range(9)]",
    "shuffle": """import random
def task(d):
    items = list(range(50))
    random.shuffle(items)
    return items + [random.gauss(0, 1), random.Random().random()]""",
    "order of a set of strings": """def task(d):
    return list({"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"})""",
    "hash of text": "def task(d):\n    return [hash('x'), hash(b'y'), hash(('z', 1.5))]",
    "hash order of objects": """class Thing:
    pass
def task(d):
    kinds = {Thing: 1, int: 2, str: 3, print: 4}
    return [str(kinds[kind]) for kind in kinds]""",
    "datetime": """import datetime
def task(d):
    now = datetime.datetime.now()
    today = datetime.date.today()
    return [now.isoformat(), today.isoformat(), str(datetime.datetime.now(datetime.UTC))]""",
    "sums of floats": """import math
def task(d):
    values = [math.sin(n) * 10.0 ** (n % 30 - 15) for n in range(2000)]
    return [sum(values), math.fsum(values), sum(set(values))]""",
    "text of an exception": "def task(d):\n    raise KeyError(sorted({'b', 'a'}))",
}
NUMERIC = {
    "numpy.random": """import numpy as np
def task(d):
    return [np.random.rand(4), np.random.default_rng().normal(size=5)]""",
    "linear algebra": """import numpy as np
def task(d):
    a = np.random.rand(60, 60)
    return [np.linalg.solve(a, np.ones(60)), a @ a, np.linalg.eigvalsh(a + a.T)]""",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    home = tmp_path_factory.mktemp("i7")
    with Deployment(home / "data") as deployment:
        volunteers = [
            deployment.attach(
                f"host{number}@example.org",
                home / f"host{number}",
                environ=dict(os.environ) | words,
            )
            for number, words in enumerate(HOSTS)
        ]
        assert deployment.line is not None
        with RawClient(Path(deployment.line.connection)) as made:
            yield made
        for process in volunteers:
            process.terminate()
            process.wait()


def submit(client, source, **fields):
    words = {"arguments": encode({}), "redundancy": AT_ONCE} | fields
    return client.submit(task_module=source.encode(), **words)


def test_programs_with_every_entropy_agree_at_once(client):
    programs = PROGRAMS | NUMERIC
    tasks = {name: submit(client, source) for name, source in programs.items()}
    answers = {name: client.wait(task_id) for name, task_id in tasks.items()}
    ended = {name: (one.state, one.code) for name, one in answers.items()}
    expected = dict.fromkeys(tasks, ("succeeded", ""))
    assert ended == expected | {"text of an exception": ("user_error", "STO-G200")}


def test_items_of_a_map_draw_different_numbers_and_agree(client):
    source = "import random\ndef task(d):\n    return random.random()"
    task_id = submit(client, source, arguments=encode([{}] * 6), map_items=6)
    answer = client.wait(task_id)
    assert (answer.state, len(answer.items)) == ("succeeded", 6)
    assert len({decode(item.value) for item in answer.items}) == 6


def test_two_tasks_of_one_source_draw_different_numbers(client):
    """The negative control: the programs above do depend on the admission's seed."""
    tasks = [submit(client, PROGRAMS["random"]) for _ in range(2)]
    first, second = (decode(client.wait(task_id).value) for task_id in tasks)
    assert first != second


def test_clock_is_the_admissions(client):
    source = """import datetime
def task(d):
    return datetime.datetime.now(datetime.UTC).timestamp()"""
    answer = client.wait(submit(client, source))
    assert abs(decode(answer.value) - answer.created_at) < 60
