# /// stoilo-case
# idea = "vector operators"
# run = "task"
# level = "pure"
# ///
import math


class Vector:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other):
        return Vector(self.x - other.x, self.y - other.y)

    def __mul__(self, k):
        return Vector(self.x * k, self.y * k)

    __rmul__ = __mul__

    def __iadd__(self, other):
        self.x += other.x
        self.y += other.y
        return self

    def __neg__(self):
        return Vector(-self.x, -self.y)

    def __matmul__(self, other):
        return self.x * other.x + self.y * other.y

    def __eq__(self, other):
        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))

    def __lt__(self, other):
        return abs(self) < abs(other)

    def __abs__(self):
        return math.hypot(self.x, self.y)

    def __repr__(self):
        return f"Vector({self.x!r}, {self.y!r})"

    def __bool__(self):
        return bool(self.x or self.y)

    def __iter__(self):
        yield self.x
        yield self.y

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (self.x, self.y)[index]

    def __format__(self, spec):
        return f"<{self.x:{spec}}|{self.y:{spec}}>"


def run(kwargs):
    a, b = Vector(3, 4), Vector(-1, 2)
    c = a
    c += b
    print(a, b, c, -b, sep="; ")
    x, y = b
    return {
        "sum": tuple(a + b),
        "dot": a @ b,
        "scaled": repr(2 * b),
        "sorted": [repr(v) for v in sorted([a, b, Vector(0, 0)])],
        "set": len({Vector(1, 1), Vector(1, 1)}),
        "truth": [bool(Vector(0, 0)), bool(a)],
        "format": f"{a:.2f}",
        "unpack": x + y,
        "same": a is c,
        "item": a[0],
        "length": len(a),
    }
