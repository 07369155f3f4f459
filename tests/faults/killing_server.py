"""`stoilo up` that ends itself with SIGKILL at a named durable step.

    python killing_server.py census FILE up ...      note every step's name in FILE
    python killing_server.py POINT SKIP up ...       die at POINT after passing it SKIP times

A point is ``<caller>:before`` or ``<caller>:after`` around one durable step: a database
commit (server and engine) or one method of the log's store. Test code only: the product has
no such switch, this program wraps it from outside.
"""

import functools
import os
import signal
import sys
import threading
from pathlib import Path

from sqlalchemy.engine.default import DefaultDialect

from stoilo.audit.log.database import LogDatabase
from stoilo.audit.log.store import DiskStore, HeadDatabase, TileDirectory
from stoilo.cli.main import main

LOG_STEPS = (
    (LogDatabase, "commit"),
    (HeadDatabase, "swap"),
    (HeadDatabase, "record_published"),
    (TileDirectory, "write_tiles"),
    (DiskStore, "write_checkpoint"),
)
PLUMBING = ("stoilo/server/db/store.py", "embedded/db/database.py", "killing_server.py")


class Points:
    """Counts passes of each point; strikes at one, or writes a census."""

    def __init__(self, wanted, argument):
        self.wanted, self.argument = wanted, argument
        self.seen = {}
        self.lock = threading.Lock()

    def reach(self, point):
        with self.lock:
            count = self.seen[point] = self.seen.get(point, 0) + 1
            if self.wanted == "census" and count == 1:
                with Path(self.argument).open("a") as census:
                    census.write(point + "\n")
            if point == self.wanted and count > int(self.argument):
                os.kill(os.getpid(), signal.SIGKILL)


def caller_name():
    """Name the nearest frame of ours that is not plumbing."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if "/stoilo/" in path and not path.endswith(PLUMBING):
            name = path.rpartition("/stoilo/")[2].removesuffix(".py").replace("/", ".")
            return f"{name}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


def around(points, name, step):
    @functools.wraps(step)
    def wrapped(*args, **kwargs):
        point = name or caller_name()
        points.reach(f"{point}:before")
        result = step(*args, **kwargs)
        points.reach(f"{point}:after")
        return result

    return wrapped


def instrument(points):
    DefaultDialect.do_commit = around(points, "", DefaultDialect.do_commit)
    for owner, name in LOG_STEPS:
        setattr(owner, name, around(points, f"log.{name}", getattr(owner, name)))


if __name__ == "__main__":
    instrument(Points(sys.argv[1], sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
