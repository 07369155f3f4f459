"""A factory of real writer processes, whose system calls a test lets fail.

    struck_writer.py FD

FD is a stream socket. Each line on it is "PHASE DIR": a child is forked that writes a
log of 302 leaves in DIR. When it reaches PHASE it says "threads NAME=TID…" and waits for
"go"; it says "ack FIRST PLACE…" for what was acknowledged, "signed BASE64" for every body
that was signed. At its end the factory says "exit CODE".

Sockets are used so that no injected fault strikes them, and the interpreter is warm, so
that every struck call is one of the log's own. Phases: open (nothing is there yet),
write (the log is open and its threads wait), close (all is written).
"""

import base64
import ctypes
import os
import socket
import sys
import threading
from pathlib import Path

from stoilo.audit.log import database
from tests.support.faulty_log import LogKey
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import DiskStore
from stoilo.core.errors import StoiloError

PR_SET_PTRACER, ANY = 0x59616D61, -1
BATCHES = (range(1), range(1, 301), range(301, 302))
database._TAIL_LEAVES = 200  # so that places are moved into the index, too
key = LogKey("log.test/t")
channel = socket.socket(fileno=int(sys.argv[1]))
lines = channel.makefile("r")


def say(text: str) -> None:
    channel.sendall(f"{text}\n".encode())


def sign(body: bytes) -> bytes:
    say(f"signed {base64.b64encode(body).decode()}")
    return key.sign(body)


def reach(name: str, phase: str) -> None:
    """Let the test attach its tracer when this is the phase that it asked for."""
    if name != phase:
        return
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(ANY), 0, 0, 0)
    started = [one for one in threading.enumerate() if one.name != "MainThread"]
    threads = " ".join(f"{one.name}={one.native_id}" for one in started)
    say(f"threads MainThread={os.getpid()} {threads}".rstrip())  # a fork keeps the old id
    assert lines.readline() == "go\n"


def start_flushers(store: DiskStore) -> None:
    """Start the threads that flush tiles, so that they can be traced by name."""
    together = threading.Barrier(4)
    store._tiles._each(lambda _: together.wait(), range(4))


def write(phase: str, data_dir: Path) -> None:
    reach("open", phase)
    settings = SequencerSettings(publish_interval_s=0, retry_s=0.02, close_s=1)
    store = DiskStore(data_dir)
    log = Sequencer.open(
        data_dir, key.origin, sign, policy=key.policy, store=store, settings=settings
    )
    with log:
        start_flushers(store)
        reach("write", phase)
        for numbers in BATCHES:
            leaves = [b"leaf %d" % number for number in numbers]
            labels = [f"task-{number}" for number in numbers]
            try:
                places = log.append_many(leaves, labels)
                say(f"ack {numbers[0]} {' '.join(map(str, places))}")
                log.wait_published(places[-1], 0.5)
            except StoiloError as error:
                say(f"refused {error.code}")
        reach("close", phase)


def child(phase: str, data_dir: str) -> None:
    try:
        write(phase, Path(data_dir))
    except (StoiloError, OSError) as error:
        say(f"refused {getattr(error, 'code', repr(error))}")
    except BaseException as error:  # a traceback is a finding
        say(f"crashed {error!r}")
    os._exit(0)


for line in lines:
    pid = os.fork()
    if pid == 0:
        child(*line.rstrip("\n").split(" ", 1))
    say(f"exit {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
