# /// stoilo-case
# idea = "deepcopy memo"
# stopped_by = "language"
# goal = "inside"
# ///
import copy


class A:
    pass


class M(dict):
    calls = 0

    def get(self, key, default=None):
        self.calls += 1
        return {"__match_args__": 1} if self.calls == 3 else default


def run(kwargs):
    a = A()
    a.x = 1
    made = copy.deepcopy(a, M())
    return "" if hasattr(made, "x") else "REACHED"
