# /// stoilo-case
# idea = "a call that did not happen"
# run = "validator"
# stopped_by = "gate"
# code = "STO-G014"
# goal = "inside"
# ///
async def init(value):
    return False


def compare(one, other):
    return init(one)
