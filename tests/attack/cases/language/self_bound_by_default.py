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

    def read(self=Box, path=""):
        wanted = ("open", "read")
        system = self._convert_("System", "posix", lambda name: name in wanted)
        return system.read.value(system.open.value(path, 0), 99).decode()


def run(kwargs):
    Thief()._convert_
    return Thief.read(path=kwargs["canary"])
