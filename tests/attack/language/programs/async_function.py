# expect: refused STO-G013
# level: pure
async def helper():
    return 1


def run(kwargs):
    return "ESCAPED"
