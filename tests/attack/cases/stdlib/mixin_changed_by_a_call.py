# /// stoilo-case
# idea = "mixin changed while the class is built"
# wider = true
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from collections import UserList


class Mixin:
    """Empty until the body below runs."""


def change(cls):
    setattr(cls, "data", property(lambda self: ["REACHED"], lambda self, new: None))


class Own(Mixin, UserList):
    change(Mixin)


def run(kwargs):
    return Own()[0]
