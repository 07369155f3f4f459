# /// stoilo-case
# idea = "signature written by the task"
# wider = true
# stopped_by = "language"
# goal = "inside"
# ///
from dataclasses import dataclass


class Base:
    "Base(x=sys.executable)\n--\n\n"


@dataclass(init=False)
class Own(Base):
    y: int = 1


def run(kwargs):
    return "REACHED" if "/" in Own.__doc__ else ""
