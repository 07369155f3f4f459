# /// stoilo-case
# idea = "uses up the server"
# run = "validator"
# stopped_by = "validation"
# verdict = "raised"
# goal = "inside"
# ///
class Long(BaseException):
    def __str__(self):
        return "x" * (1 << 22)


def init(value):
    raise Long
