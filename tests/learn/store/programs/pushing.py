"""Push without end to the parameter server in argv[1]; print "ok" for each that is in."""

import sys
from pathlib import Path

from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.protocol import Change, Push

store = ParameterServer.open(Path(sys.argv[1]), 2)
store.create(dict.fromkeys("abc", 0))
marks = [cell.marks.get("w", -1) for cell in store.read("abc").values()]
sequence = min(marks) + 1
while True:
    store.push(Push("w", sequence, [Change(key, "add", 1) for key in "abc"]))
    sequence += 1
    print("ok", flush=True)
