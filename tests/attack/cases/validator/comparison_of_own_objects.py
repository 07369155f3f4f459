# /// stoilo-case
# idea = "true by its own word"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
class Any:
    def __eq__(self, other):
        return self


def compare(one, other):
    return Any() == one
