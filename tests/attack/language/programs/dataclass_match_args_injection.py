# expect: refused STO-G106
# level: pure
# seen in: 3.11.7
from dataclasses import dataclass
from typing import TypedDict


def run(kwargs):
    fields = {"__reduce__": int}
    made = dataclass(TypedDict("X", fields), init=False, repr=False, eq=False)
    match dict.__new__(made):
        case made(found):
            return "ESCAPED" if callable(found) else ""
