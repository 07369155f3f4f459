# /// stoilo-case
# idea = "true but no bool"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
def compare(one, other):
    return one.__eq__(1)
