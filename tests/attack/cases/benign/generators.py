# /// stoilo-case
# idea = "generators"
# run = "task"
# level = "pure"
# kwargs = { parts = 3 }
# ///
def primes():
    found = []
    candidate = 2
    while True:
        if all(candidate % p for p in found if p * p <= candidate):
            found.append(candidate)
            yield candidate
        candidate += 1


def take(iterator, n):
    for _, item in zip(range(n), iterator):
        yield item


def averager():
    total, count = 0.0, 0
    mean = None
    while True:
        value = yield mean
        total += value
        count += 1
        mean = total / count


def chain(*parts):
    for part in parts:
        result = yield from part
        if result is not None:
            yield result


def counted(n):
    yield from range(n)
    return n


def run(kwargs):
    running = averager()
    next(running)
    means = [running.send(x) for x in (1, 2, 6)]
    running.close()
    return [list(take(primes(), 12)), means, list(chain(counted(2), counted(3)))]
