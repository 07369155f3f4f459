# /// stoilo-case
# idea = "a call that did not happen"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
def init(value):
    return lambda: False
