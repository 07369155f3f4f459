# /// stoilo-case
# idea = "async"
# stopped_by = "gate"
# code = "STO-G014"
# goal = "inside"
# ///
class Source:
    def __aiter__(self):
        return self

    async def __anext__(self):
        raise StopAsyncIteration


def run(kwargs):
    async def collect():
        return [item async for item in Source()] or "REACHED"

    try:
        collect().send(None)
    except StopIteration as end:
        return end.value
