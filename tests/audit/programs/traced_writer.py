"""Appends and says so; run under strace, which sees what was flushed before each word.

    traced_writer.py DIR [log|head]

Four threads append leaves "leaf-000", …; after each acknowledgement one line "ack
leaf-000" goes to stdout. With a second word that database is not flushed: the control.
"""

import os
import sys
import threading
from pathlib import Path

from tests.support.faulty_log import LogKey
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import DiskStore

LEAVES = 60
data_dir = Path(sys.argv[1])
key = LogKey("log.test/t")
store = DiskStore(data_dir)
log = Sequencer.open(data_dir, key.origin, key.sign, policy=key.policy, store=store)
log.append(b"first")
if "log" in sys.argv[2:]:
    store._log._write().execute("PRAGMA synchronous = OFF")
if "head" in sys.argv[2:]:
    store._head._open().execute("PRAGMA synchronous = OFF")
numbers = iter(range(LEAVES))
guard = threading.Lock()


def write() -> None:
    while True:
        with guard:
            number = next(numbers, None)
        if number is None:
            return
        name = b"leaf-%03d" % number
        log.append(name + b" " * 20)
        os.write(1, b"ack %s\n" % name)


threads = [threading.Thread(target=write) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
os.write(1, b"done\n")
log.close()
