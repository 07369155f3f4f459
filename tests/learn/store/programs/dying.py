"""`stoilo learn shard` that kills itself (SIGKILL) at one of the points of a request.

Usage: dying.py POINT KIND MOST LIVES --data DIR --listen ADDRESS

POINT: ``before_append`` and ``after_append`` of a push to the file, ``before_reply``,
``half_reply`` and ``after_reply``, ``statement`` before an SQL statement, ``within`` one. Each
life comes a little further than the one before; after MOST lives none is killed. The file
LIVES counts them. KIND: of `tests.support.faultyshards`.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path

from stoilo.cli.learn.parts import shard
from stoilo.learn.store import network, protocol, shards
from tests.support.faultyshards import KINDS, kill_before

point, kind, most, lives, *rest = sys.argv[1:]
with Path(lives).open("a") as file:
    file.write("x")
life = len(Path(lives).read_text())
left = life % 4 + 1 if life <= int(most) else 0


def pass_by(name):
    """End here when it is the point, and its turn."""
    global left
    if name == point and left:
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)


class Dying(KINDS[kind]):
    def _write(self, file, rows):
        pass_by("before_append")
        super()._write(file, rows)
        pass_by("after_append")


plain = protocol.send_frame


def send_frame(connection, record):
    pass_by("before_reply")
    if point == "half_reply" and left == 1:
        body = protocol.encode(record)
        connection.sendall(len(body).to_bytes(8, "big") + body[: len(body) // 2])
    pass_by("half_reply")
    size = plain(connection, record)
    pass_by("after_reply")
    return size


def connect(path, *, read_only=False):
    """Count the steps of SQLite's machine, ten at a time: most lie within a statement."""
    connection = opened(path, read_only=read_only)
    calls, end = count(1), 12 * life if life <= int(most) else 0
    connection.set_progress_handler(
        lambda: next(calls) == end and os.kill(os.getpid(), signal.SIGKILL), 10
    )
    return connection


protocol.send_frame = send_frame
network.LocalShard = Dying
opened = shards.connect
if point == "within":
    shards.connect = connect
if point == "statement" and life <= int(most):
    kill_before(14 + 3 * life)  # the first ones are those of opening the file
sys.argv[1:] = rest
shard()
