# /// stoilo-case
# idea = "keywords of the task's own class"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from enum import Enum


class Word(str):
    def __hash__(self):
        return 1

    def __eq__(self, other):
        return str(other) == str(self)


def run(kwargs):
    made = Enum("Made", ["a"], **{Word("type"): int})
    return "REACHED" if isinstance(made.a, int) else ""
