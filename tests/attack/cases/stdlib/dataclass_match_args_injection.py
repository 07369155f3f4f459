# /// stoilo-case
# idea = "dataclass text"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# first_python = "3.11.7"
# ///
from dataclasses import dataclass
from typing import TypedDict


def run(kwargs):
    fields = {"__reduce__": int}
    made = dataclass(TypedDict("X", fields), init=False, repr=False, eq=False)
    match dict.__new__(made):
        case made(found):
            return "REACHED" if callable(found) else ""
