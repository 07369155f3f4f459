# /// stoilo-case
# idea = "self that is somebody else"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


class Thief:
    _convert_ = 1

    def read(self, path):
        yield 1
        wanted = ("open", "read")
        system = self._convert_("System", "posix", lambda name: name in wanted)
        yield system.read.value(system.open.value(path, 0), 99).decode()


def run(kwargs):
    return list(Thief.read(Box, kwargs["canary"]))[-1]
