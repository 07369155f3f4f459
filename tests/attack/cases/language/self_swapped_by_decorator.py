# /// stoilo-case
# idea = "self that is somebody else"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


def swap(method):
    return lambda self, path: method(Box, path)


class Thief:
    _convert_ = 1

    @swap
    def read(self, path):
        wanted = ("open", "read")
        system = self._convert_("System", "posix", lambda name: name in wanted)
        return system.read.value(system.open.value(path, 0), 99).decode()


def run(kwargs):
    return Thief().read(kwargs["canary"])
