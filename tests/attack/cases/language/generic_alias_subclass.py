# /// stoilo-case
# idea = "a base class that forwards attributes"
# stopped_by = "language"
# code = "STO-G105"
# ///
from enum import Enum
from types import GenericAlias


class Box(Enum):
    pass


class Alias(GenericAlias):
    pass


def run(kwargs):
    wanted = ("open", "read")
    convert = Alias(Box, int)._convert_
    system = convert("System", "posix", lambda name: name in wanted)
    return system.read.value(system.open.value(kwargs["canary"], 0), 99).decode()
