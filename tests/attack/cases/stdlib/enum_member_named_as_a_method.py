# /// stoilo-case
# idea = "enum member read off its value"
# wider = true
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# control = "host"
# ///
from enum import Enum
from textwrap import TextWrapper


class Mixin:
    def _split(self):
        """A method whose name a member takes."""


class Own(Mixin, Enum):
    _split = 1
    OTHER = TextWrapper()


def run(kwargs):
    found = Own.OTHER._split
    return "" if found is Own(1) else "REACHED"
