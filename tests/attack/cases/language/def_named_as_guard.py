# /// stoilo-case
# idea = "guard name by definition"
# stopped_by = "gate"
# code = "STO-G010"
# ///
from enum import Enum


class Box(Enum):
    pass


def steal(kwargs):
    wanted = ("open", "read", "O_RDONLY")
    system = Box._convert_("System", "posix", lambda name: name in wanted)
    descriptor = system.open.value(kwargs["canary"], system.O_RDONLY.value)
    return system.read.value(descriptor, 99)


def _stoilo_getattr(value, name):
    return getattr(value, name)


def run(kwargs):
    return steal(kwargs)
