"""A real writer process: appends numbered leaves and says which were acknowledged.

    log_writer.py DIR START [STEP CALL PERSISTED]

Four threads append START, START+1, …; each acknowledged leaf is one line "number index".
With STEP, the process kills itself at that durable step.
"""

import itertools
import os
import sys
import threading
from pathlib import Path

from stoilo.audit.fakes import Fault, FaultKind, FaultyStore, LogKey
from stoilo.audit.sequencer import Sequencer

data_dir, start = Path(sys.argv[1]), int(sys.argv[2])
fault = None
if len(sys.argv) > 3:
    step, call, persisted = sys.argv[3:6]
    fault = Fault(step, int(call), FaultKind.KILL, persisted == "1")
key = LogKey("log.test/t")
log = Sequencer.open(
    data_dir,
    "log.test/t",
    key.sign,
    policy=key.policy,
    store=FaultyStore(data_dir, fault),
)
numbers = itertools.count(start)
os.write(1, b"ready\n")


def write() -> None:
    for number in numbers:
        index = log.append(b"leaf %d" % number, f"task-{number}")
        os.write(1, b"%d %d\n" % (number, index))


threads = [threading.Thread(target=write) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
