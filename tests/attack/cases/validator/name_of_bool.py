# /// stoilo-case
# idea = "true by its own word"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
class bool(int):
    pass


def init(value):
    return bool(1)
