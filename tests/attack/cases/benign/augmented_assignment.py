# /// stoilo-case
# idea = "augmented assignment"
# run = "task"
# level = "pure"
# ///
class Counter:
    total = 0

    def __init__(self):
        self.n = 0
        self._log = {}

    def hit(self, key, k=1):
        self.n += k
        self._log[key] = self._log.get(key, 0)
        self._log[key] += k
        self._log[key] **= 2
        return self


def run(kwargs):
    d = {"a": 1}
    d["a"] += 5
    items = [1, 2, 3]
    items[0] -= 4
    items[1:] += [9]
    items += [7]
    items *= 2
    alias = s = {1, 2}
    s |= {3}
    c = Counter().hit("x").hit("x", 2)
    c.n *= 3
    c._log["y"] = 1
    c._log["y"] <<= 3
    Counter.total += 2
    calls = []

    def index():
        calls.append(1)
        return 0

    items[index()] += 100
    x = 7
    x //= 2
    x ^= 1
    return [d, items, sorted(alias), c.n, c._log, Counter.total, calls, x]
