# /// stoilo-case
# idea = "an alias that forwards attributes"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum
from typing import Annotated


class Box(Enum):
    pass


def run(kwargs):
    wanted = ("open", "read")
    convert = Annotated[Box, 1]._convert_
    system = convert("System", "posix", lambda name: name in wanted)
    return system.read.value(system.open.value(kwargs["canary"], 0), 99).decode()
