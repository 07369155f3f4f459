# /// stoilo-case
# idea = "hooks that answer for refused names"
# stopped_by = "language"
# goal = "inside"
# ///
import copy


class A:
    def __getattr__(self, name):
        return lambda memo: "REACHED"


def run(kwargs):
    return str(copy.deepcopy(A()))
