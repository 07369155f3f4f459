# /// stoilo-case
# idea = "iteration protocol"
# run = "task"
# level = "pure"
# ///
class Countdown:
    def __init__(self, start):
        self.current = start

    def __iter__(self):
        return self

    def __next__(self):
        if self.current <= 0:
            raise StopIteration
        self.current -= 1
        return self.current + 1


class Table:
    def __init__(self):
        self._rows = {}

    def __setitem__(self, key, value):
        self._rows[key] = value

    def __getitem__(self, key):
        return self._rows[key]

    def __delitem__(self, key):
        del self._rows[key]

    def __contains__(self, key):
        return key in self._rows

    def __len__(self):
        return len(self._rows)

    def __reversed__(self):
        return iter(sorted(self._rows, reverse=True))

    def __call__(self, k):
        return [v * k for v in self._rows.values()]


def run(kwargs):
    table = Table()
    for i in Countdown(3):
        table[i] = i * i
    table[3] += 1
    del table[1]
    first, *middle, last = range(6)
    (a, (b, c)), d = (1, (2, 3)), 4
    for (i, j), k in [((1, 2), 3)]:
        table[i] = j + k
    return [
        list(Countdown(4)),
        2 in table,
        1 in table,
        len(table),
        list(reversed(table)),
        table(10),
        middle,
        last,
        (a, b, c, d),
        callable(table),
        list(iter(iter([1, 2, 3, 0, 5]).__next__, 0)),
    ]
