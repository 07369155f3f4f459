# /// stoilo-case
# idea = "a base class that forwards attributes"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from types import GenericAlias


class Alias(GenericAlias):
    pass


def run(kwargs):
    text = Alias("{0.__globals__}", int).format(run)
    return "REACHED" if "__builtins__" in text else ""
