"""I2 inside the jail: its jobs, run in a plain process under an audit hook, unpickle nothing.

The zygote takes no environment from anyone, so no hook can be put into a real one; here
the same job modules work on honest and on pickled bytes in a process that has the hook.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HOOKED = """
import sys

noted = []
sys.addaudithook(lambda event, _: noted.append(event) if event == "pickle.find_class" else None)

from stoilo.core.codec.skeleton import decode, encode
from stoilo.policies.levels import load_level
from io import StringIO
from stoilo.sandbox.process import {job}
from stoilo.sandbox.process.channel import TaskRequest

PICKLE = b"\\x80\\x04\\x8c\\x09fractions\\x8c\\x08Fraction\\x93K\\x01\\x85R."
{job}.prepare(load_level("numeric"))
for data in {requests}:
    {job}.run(data, StringIO())
if {control}:
    import pickle
    pickle.loads(PICKLE)
print(len(noted))
"""
TASK = """[
    TaskRequest("import numpy as np\\ndef f(d):\\n    return np.ones(d['n'])", "f",
                encode({"n": 3})).encode(),
    TaskRequest("def f(d):\\n    return d", "f", PICKLE).encode(),
    TaskRequest("def f(d):\\n    return d", "f", encode({}), blobs=(PICKLE,)).encode(),
]"""
VALIDATE = """[
    encode({"source": "def c(a, b):\\n    return a == b", "op": "compare", "entry": "c",
            "values": [value, encode(1)]})
    for value in (encode(1), PICKLE)
]"""


def run(job: str, requests: str, *, control: bool = False) -> str:
    program = HOOKED.format(job=job, requests=requests, control=control)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.mark.parametrize(
    ("job", "requests"), [("task_job", TASK), ("validate_job", VALIDATE)]
)
def test_job_unpickles_nothing(job, requests):
    assert run(job, requests) == "0"


def test_hook_would_note_it():
    assert run("task_job", "[]", control=True) == "1"
