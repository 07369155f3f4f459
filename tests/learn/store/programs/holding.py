"""Open the parameter server in argv[1] with shards as processes, push, print their pids."""

import sys
import time
from pathlib import Path

from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.protocol import Change, Push

store = ParameterServer.open(Path(sys.argv[1]), 2, processes=True)
store.create({"a": 0, "b": 0, "c": 0})
store.push(Push("w", 0, [Change(key, "add", 1) for key in "abc"]))
print(*(shard.process.pid for shard in store.shards.values()), flush=True)
time.sleep(600)
