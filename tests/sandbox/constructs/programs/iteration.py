class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n + 1


class Grid:
    def __init__(self, cells):
        self._cells = cells

    def __len__(self):
        return len(self._cells)

    def __getitem__(self, at):
        return self._cells[at]

    def __setitem__(self, at, value):
        self._cells[at] = value

    def __contains__(self, value):
        return any(cell == value for cell in self._cells)

    def __reversed__(self):
        return iter("reversed")


def run(kwargs):
    grid, found = Grid([3, 1, 2]), []
    grid[0] += 7
    for i, (a, *b) in enumerate([(1, 2), (3,)]):
        found.append((i, a, b))
    for n in range(5):
        if n == 9:
            break
    else:
        found.append("else")
    while n:
        n -= 2
        if n == 2:
            continue
        found.append(n)
    it = iter(Countdown(3))
    return [list(Countdown(3)), next(it), list(it), sorted(grid), 10 in grid, "".join(reversed(grid)), found, list(map(max, [1, 5], [4, 2]))]


# abuse: STO-G102
import math


def run(kwargs):
    for math.pi in [3]:
        pass
    return "REACHED" if math.pi == 3 else "no"
