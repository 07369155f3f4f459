# /// stoilo-case
# idea = "deepcopy memo"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import copy


class A:
    def __deepcopy__(self, memo):
        return [key for key in memo]


def run(kwargs):
    return "REACHED" if copy.deepcopy([A()])[0] else ""
