"""A member of groups. Usage: member.py FOLDER LEASE. Prints its place, then what it is told."""

import json
import sys
from pathlib import Path

from stoilo.learn.coordinator.meeting import MemberService


def told(group, ready):
    print(json.dumps([group, list(ready)]), flush=True)


service = MemberService(Path(sys.argv[1]), "127.0.0.1:0", told, float(sys.argv[2]))
print(json.dumps(service.place.shard), flush=True)
service.run()
