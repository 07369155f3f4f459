# /// stoilo-case
# idea = "a call that did not happen"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
class Agree:
    def __init__(self, one, other):
        self.verdict = False


def compare(one, other):
    return Agree(one, other)
