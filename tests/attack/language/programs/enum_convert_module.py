# expect: refused STO-G101
# level: pure
from enum import Enum


class X(Enum):
    pass


def run(kwargs):
    system = X._convert_("Z", "posix", lambda name: name == "getpid")
    return "ESCAPED" if system.getpid.value() else ""
