# /// stoilo-case
# idea = "one field of two dataclasses"
# wider = true
# stopped_by = "language"
# goal = "inside"
# ///
from dataclasses import asdict, dataclass, field
from textwrap import TextWrapper

shared = field(default=3)


class Shared:
    def __get__(self, instance, owner):
        return shared


@dataclass(init=False)
class Own(TextWrapper):
    plain: int = Shared()


@dataclass(init=False)
class Other:
    _split: int = Shared()


def run(kwargs):
    return "REACHED" if callable(asdict(Own())["_split"]) else ""
