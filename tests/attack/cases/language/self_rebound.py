# /// stoilo-case
# idea = "self bound to something else"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


class Thief:
    def read(self, kwargs):
        for self in [Box]:
            wanted = ("open", "read")
            convert = self._convert_
            system = convert("System", "posix", lambda name: name in wanted)
            return system.read.value(system.open.value(kwargs["canary"], 0), 99)


def run(kwargs):
    return Thief().read(kwargs)
