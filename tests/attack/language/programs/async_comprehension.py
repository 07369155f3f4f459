# expect: refused STO-G013
# level: pure
def run(kwargs):
    async def f(x):
        return [y async for y in x]

    return "ESCAPED"
