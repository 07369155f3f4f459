# /// stoilo-case
# idea = "methods of a library on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from collections import UserString


class Text:
    @classmethod
    def upper(cls):
        return int


class Source:
    data = Text


class Own(UserString):
    @classmethod
    def real(cls):
        return super().upper(Source)


def run(kwargs):
    return "REACHED" if len(Own.real()("Made", (), {}).mro()) == 2 else ""
