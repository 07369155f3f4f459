# /// stoilo-case
# idea = "methods of a library on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from collections import Counter


def run(kwargs):
    (real,) = map(Counter.copy, [int])
    return "REACHED" if len(real("Made", (), {}).mro()) == 2 else ""
