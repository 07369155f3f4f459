# /// stoilo-case
# idea = "hooks of classes that extend a library's"
# stopped_by = "language"
# goal = "inside"
# ///
import random
from dataclasses import dataclass


class Look:
    def __set_name__(self, owner, name):
        match owner():
            case owner(found):
                self.found = found


@dataclass
class Fields:
    _randbelow: object = None


class Both(Fields, random.Random):
    look = Look()

    def __init__(self):
        """Leave it to the library."""


def run(kwargs):
    return "REACHED"
