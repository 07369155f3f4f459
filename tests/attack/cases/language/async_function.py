# /// stoilo-case
# idea = "async"
# stopped_by = "gate"
# code = "STO-G014"
# goal = "inside"
# ///
async def helper():
    return "REACHED"


def run(kwargs):
    try:
        helper().send(None)
    except StopIteration as end:
        return end.value
