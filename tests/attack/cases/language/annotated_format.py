# /// stoilo-case
# idea = "an alias that forwards attributes"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from typing import Annotated


class Text(str):
    pass


def run(kwargs):
    walk = Annotated[Text, 1].format
    return "REACHED" if "__builtins__" in walk("{0.__globals__}", run) else ""
