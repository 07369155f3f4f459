"""Start a group and stay in a phase. Usage: starting.py PHASE LEASE CONNECTION…"""

import sys
import time
from pathlib import Path

from stoilo.core.digests import content_digest
from stoilo.learn.coordinator.meeting import Meeting
from stoilo.learn.store.place import read_place


def watch(phase):
    print(phase, flush=True)
    if phase == sys.argv[1]:
        time.sleep(600)


places = {path: read_place(Path(path)) for path in sys.argv[3:]}
inputs = {content_digest(b"data"): b"data"}
with Meeting(places, inputs, lease_s=float(sys.argv[2]), watch=watch):
    time.sleep(600)
