# /// stoilo-case
# idea = "class patterns"
# stopped_by = "gate"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


def run(kwargs):
    match Box:
        case object(_convert_=convert):
            wanted = ("open", "read")
            system = convert("System", "posix", lambda name: name in wanted)
            return system.read.value(system.open.value(kwargs["canary"], 0), 99)
