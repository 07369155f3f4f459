# /// stoilo-case
# idea = "private attribute of a library base"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    @classmethod
    def steal(cls, path):
        wanted = ("open", "read")
        system = cls._convert_("System", "posix", lambda name: name in wanted)
        return system.read.value(system.open.value(path, 0), 99).decode()


def run(kwargs):
    return Box.steal(kwargs["canary"])
