# /// stoilo-case
# idea = "nonlocal counters"
# run = "task"
# level = "pure"
# ///
total = 0


def make_counter(start=0):
    count = start

    def step(by=1):
        nonlocal count
        count += by
        return count

    return step


def add_global(n):
    global total
    total += n
    return total


def run(kwargs):
    a, b = make_counter(), make_counter(10)
    return [a(), a(2), b(), a(), add_global(3), add_global(4)]
