# /// stoilo-case
# idea = "true by its own word"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
class Yes:
    def __bool__(self):
        return True


def init(value):
    return Yes()
