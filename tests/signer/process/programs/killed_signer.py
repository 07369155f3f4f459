"""A signer that is killed at a chosen moment of recording its third checkpoint.

argv: directory, socket, moment (before | between | after). `before`: nothing recorded;
`between`: recorded durably, signature not given out; `after`: answered, then killed.
"""

import os
import signal
import sys
from pathlib import Path

from stoilo.signer.process import listener
from stoilo.signer.process import service
from stoilo.signer.process.memory import LEDGER_FILE, CheckpointLedger
from stoilo.signer.process.service import SignerService

DIRECTORY, SOCKET, MOMENT = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
asked = 0


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class DoomedLedger(CheckpointLedger):
    def record(self, checkpoint, consistency=()):
        global asked
        asked += 1
        if asked == 3 and MOMENT == "before":
            die()
        super().record(checkpoint, consistency)
        if asked == 3 and MOMENT == "between":
            die()


ledger = DoomedLedger(DIRECTORY / "state" / LEDGER_FILE)
real = listener.send_record


def send(connection, record):
    # Asked beforehand: once the second answer is out, another thread may get the third.
    third = asked == 3
    real(connection, record)
    if third and MOMENT == "after":
        die()


listener.send_record = send
lock = listener.take_lock(DIRECTORY)
signer = SignerService(DIRECTORY, ledger=ledger, clock=service.wall_clock)
listener.serve(signer, listener.open_listener(SOCKET), {os.geteuid()})
