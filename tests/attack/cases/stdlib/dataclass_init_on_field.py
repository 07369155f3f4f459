# /// stoilo-case
# idea = "methods made by dataclass on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass, fields


@dataclass
class Name:
    name: object


@dataclass
class Base:
    x: object = None


def run(kwargs):
    Name.__init__(fields(Base)[0], "y=1")  # dataclasses compile text made of names
    return "REACHED" if fields(Base)[0].name == "y=1" else ""
