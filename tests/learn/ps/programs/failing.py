"""A shard's process that kills itself (SIGKILL) before a statement: later in each life.

Usage: failing.py KIND FIRST MOST LIVES FD. The file LIVES counts the lives. The first ends
before SQL statement FIRST, the next one statement later; after MOST lives none is killed. KIND: careful; careless writes value and mark in two
transactions; hasty acknowledges before it writes.
"""

import os
import signal
import socket
import sys
from pathlib import Path

from stoilo.learn.ps import process, shards


class Careless(shards.Shard):
    def _write(self, file, rows):
        for row in rows:
            file.execute(shards._WRITE, (*row[:-1], "{}"))
        super()._write(file, rows)


class Hasty(shards.Shard):
    later = ()

    def _write(self, file, rows):
        if self.later:
            super()._write(file, self.later)
        self.later = rows

    def close(self):
        self._write(self._file, ())
        super().close()


def kill_before(statement):
    left = statement

    def trace(_text):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    plain = shards.connect

    def connect(path):
        connection = plain(path)
        connection.set_trace_callback(trace)
        return connection

    shards.connect = connect


kind, first, most, lives, fd = sys.argv[1:]
with Path(lives).open("a") as file:
    file.write("x")
life = len(Path(lives).read_text())
if life <= int(most):
    kill_before(int(first) + life - 1)
Kind = {"careful": shards.Shard, "careless": Careless, "hasty": Hasty}[kind]
with socket.socket(fileno=int(fd)) as connection:
    process.serve(connection, lambda request: Kind(Path(request.path)))
