# /// stoilo-case
# idea = "methods of a library on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from collections import UserList


def run(kwargs):
    real = UserList.copy(int)
    made = real("Made", (), {"__len__": lambda self: 3})
    return "REACHED" if len(made()) == 3 else ""
