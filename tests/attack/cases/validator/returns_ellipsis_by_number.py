# /// stoilo-case
# idea = "true but no bool"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
class Sly(int):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def init(value):
    return Sly(1)
