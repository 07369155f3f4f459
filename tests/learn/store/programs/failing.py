"""A shard's process that kills itself (SIGKILL) before a statement: later in each life.

Usage: failing.py KIND FIRST MOST LIVES FD. The file LIVES counts the lives. The first ends
before SQL statement FIRST, the next one statement later; after MOST lives none is killed.
KIND: of `tests.support.faultyshards`.
"""

import socket
import sys
from pathlib import Path

from stoilo.learn.store import process
from tests.support.faultyshards import KINDS, kill_before


kind, first, most, lives, fd = sys.argv[1:]
with Path(lives).open("a") as file:
    file.write("x")
life = len(Path(lives).read_text())
if life <= int(most):
    kill_before(int(first) + life - 1)
with socket.socket(fileno=int(fd)) as connection:
    process.serve(connection, lambda request: KINDS[kind](Path(request.path)))
