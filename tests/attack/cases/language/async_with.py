# /// stoilo-case
# idea = "async"
# stopped_by = "gate"
# code = "STO-G014"
# goal = "inside"
# ///
class Manager:
    async def __aenter__(self):
        return "REACHED"

    async def __aexit__(self, kind, value, trace):
        return False


def run(kwargs):
    async def enter():
        async with Manager() as value:
            return value

    try:
        enter().send(None)
    except StopIteration as end:
        return end.value
