# /// stoilo-case
# idea = "private attribute of a library base"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


def run(kwargs):
    wanted = ("open", "read")
    convert = getattr(Box, "_con" + "vert_")
    system = convert("System", "posix", lambda name: name in wanted)
    return system.read.value(system.open.value(kwargs["canary"], 0), 99).decode()
