# /// stoilo-case
# idea = "private attribute of a library base"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


class Own:
    def _convert_(self):
        return 1

    def steal(self, path):
        wanted = ("open", "read")
        convert = self._convert_
        system = convert("System", "posix", lambda name: name in wanted)
        return system.read.value(system.open.value(path, 0), 99).decode()


def run(kwargs):
    own = Own()
    own._convert_
    return Own.steal(Box, kwargs["canary"])
