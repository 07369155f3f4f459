# /// stoilo-case
# idea = "inherited library methods on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import math
from collections import UserDict


class U(UserDict):
    pass


def run(kwargs):
    target = [math][0]
    getattr(U, "__in" + "it__")(target)
    target.data["x"] = "REACHED"
    return target.data["x"]
