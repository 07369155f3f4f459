# /// stoilo-case
# idea = "methods of a library on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
import typing


def run(kwargs):
    real = typing.Counter.copy(int)
    return "REACHED" if len(real("Made", (), {}).mro()) == 2 else ""
