# /// stoilo-case
# idea = "enum internals"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


def run(kwargs):
    wanted = ("open", "read")
    system = Box._convert_("System", "posix", lambda name: name in wanted)
    return system.read.value(system.open.value(kwargs["canary"], 0), 99).decode()
