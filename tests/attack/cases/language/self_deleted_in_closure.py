# /// stoilo-case
# idea = "self bound to something else"
# stopped_by = "language"
# code = "STO-G101"
# ///
from enum import Enum


class Box(Enum):
    pass


class Thief:
    _convert_ = None

    def read(self, kwargs):
        def swap(other):
            nonlocal self
            self = other

        self._convert_
        swap(Box)
        wanted = ("open", "read")
        system = self._convert_("System", "posix", lambda name: name in wanted)
        return system.read.value(system.open.value(kwargs["canary"], 0), 99)


def run(kwargs):
    return Thief().read(kwargs)
