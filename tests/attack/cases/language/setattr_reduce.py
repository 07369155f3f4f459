# /// stoilo-case
# idea = "reduce protocol"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import copy


class A:
    pass


def run(kwargs):
    setattr(A, "__re" + "duce__", lambda self: (str, ("REACHED",)))
    return copy.copy(A())
