"""A real writer process: appends numbered leaves and says which were acknowledged.

    log_writer.py DIR START [STEP CALL PERSISTED]

It says "opening" before it opens the log and "ready" afterwards. Four threads append
START, START+1, …; each acknowledged leaf is one line "number index", each body that was
signed a line "signed BASE64". With STEP, the process kills itself at that step. A real
witness of its own cosigns what is published; it lies in DIR/witness.
"""

import base64
import itertools
import os
import sys
import threading
from pathlib import Path

from tests.support.faulty_log import Fault, FaultKind, FaultyCall, FaultyStore, LogKey
from stoilo.audit.format.policy import parse_policy
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.witness.client import Cosigner
from tests.support.local_witness import LocalWitness

data_dir, start = Path(sys.argv[1]), int(sys.argv[2])
fault = None
if len(sys.argv) > 3:
    step, call, persisted = sys.argv[3:6]
    fault = Fault(step, int(call), FaultKind.KILL, persisted == "1")
key = LogKey("log.test/t")


def sign(body: bytes) -> bytes:
    os.write(1, b"signed " + base64.b64encode(body) + b"\n")
    return key.sign(body)


witness = LocalWitness(data_dir / "witness", "witness.test/w", key)
policy = parse_policy(
    f"log {key.vkey}\nwitness w {witness.key.vkey} http://w/\nquorum w\n".encode()
)
os.write(1, b"opening\n")
log = Sequencer.open(
    data_dir,
    "log.test/t",
    FaultyCall("sign", sign, fault),
    cosign=FaultyCall("cosign", Cosigner(policy, wire=lambda _: witness), fault),
    policy=policy,
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
