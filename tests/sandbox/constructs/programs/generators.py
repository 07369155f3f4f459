def walk(tree):
    if isinstance(tree, list):
        for part in tree:
            yield from walk(part)
    else:
        yield tree


def average():
    total = count = 0
    mean = None
    while True:
        try:
            value = yield mean
        except ValueError:
            total = count = 0
            continue
        total, count = total + value, count + 1
        mean = total / count


def closing(log):
    try:
        yield 1
        return "returned"
    finally:
        log.append("closed")


def run(kwargs):
    log, mean = [], average()
    next(mean)
    means = [mean.send(n) for n in (2, 4)]
    mean.throw(ValueError())
    means.append(mean.send(10))
    one = closing(log)
    next(one)
    one.close()
    try:
        rest = closing(log)
        next(rest)
        next(rest)
    except StopIteration as stop:
        log.append(stop.value)
    return [list(walk([1, [2, [3]], []])), means, log, list(zip(*[iter(range(4))] * 2))]


# abuse: STO-G101
def run(kwargs):
    def g():
        yield frame.f_back

    step = g()
    frame = step.gi_frame
    return "REACHED" if frame else "no"
