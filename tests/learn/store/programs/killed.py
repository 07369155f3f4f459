"""Push to a parameter server and be killed before each statement of its databases.

Usage: killed.py FOLDER push|move careful|careless|hasty STEP

For n = 1, 1 + STEP, … a forked child does the work and kills itself before statement n; another
child then does the rest. Prints one JSON list a kill: [n, acknowledged, kept, in the end].
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from stoilo.learn.store import server
from stoilo.learn.store.protocol import Change, Push
from tests.support.faultyshards import KINDS, kill_before

PUSHES = 2
KEYS = [f"k{index}" for index in range(6)]


def open_server(folder, count):
    found = server.ParameterServer.open(folder, count)
    found.create({key: np.zeros(3) for key in KEYS})
    return found


def acknowledged(folder):
    path = folder / "acknowledged"
    return len(path.read_text()) if path.exists() else 0


def push_all(folder, count):
    store = open_server(folder, count)
    for sequence in range(acknowledged(folder), PUSHES):
        changes = [Change(key, "add", np.ones(3)) for key in KEYS]
        store.push(Push("w", sequence, changes))
        with (folder / "acknowledged").open("a") as file:
            file.write("x")
    store.close()


def values(folder, count):
    store = open_server(folder, count)
    found = [float(cell.value[0]) for cell in store.read(KEYS).values()]
    store.close()
    return found


def in_child(work):
    """Run `work` in a child; return whether it was killed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if status not in (0, signal.SIGKILL):
        sys.exit(f"the child failed: {status}")
    return status == signal.SIGKILL


def main(folder, task, kind, step):
    server.LocalShard = KINDS[kind]
    for statement in range(1, 10_000, step):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if task == "move":
            push_all(folder, 2)
        count = 2 if task == "push" else 4

        def work():
            kill_before(statement)
            push_all(folder, count) if task == "push" else values(folder, count)

        if not in_child(work):
            break
        acks = acknowledged(folder)
        kept = values(folder, count)
        push_all(folder, count)
        print(json.dumps([statement, acks, kept, values(folder, count)]))


main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
