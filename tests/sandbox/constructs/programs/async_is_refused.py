def run(kwargs):
    def steps():
        got = yield "ready"
        yield got * 2

    step = steps()
    return [next(step), step.send(21)]


# abuse: STO-G014
async def later():
    return "REACHED"


def run(kwargs):
    step = later()
    try:
        step.send(None)
    except StopIteration as stop:
        return stop.value
