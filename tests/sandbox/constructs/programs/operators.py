class Vector:
    def __init__(self, *values):
        self.values = values

    def __add__(self, other):
        return Vector(*(a + b for a, b in zip(self.values, other.values)))

    def __radd__(self, other):
        return self if other == 0 else NotImplemented

    def __iadd__(self, other):
        self.values = (self + other).values
        return self

    def __mul__(self, k):
        return Vector(*(a * k for a in self.values))

    __rmul__ = __mul__

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.values, other.values))

    def __neg__(self):
        return self * -1

    def __eq__(self, other):
        return self.values == other.values

    def __hash__(self):
        return hash(self.values)

    def __bool__(self):
        return any(self.values)

    def __abs__(self):
        return (self @ self) ** 0.5

    def __call__(self, x):
        return sum(a * x**i for i, a in enumerate(self.values))

    def __index__(self):
        return 2

    def __repr__(self):
        return f"Vector{self.values}"

    def __str__(self):
        return "v"


def run(kwargs):
    a, b = Vector(1, 2), Vector(3, 4)
    a += b
    return [
        repr(a), repr(sum([a, b])), repr(2 * b), a @ b, repr(-a), a == Vector(4, 6), len({a, Vector(4, 6)}), bool(Vector(0, 0)),
        abs(Vector(3, 4)), b(10), [0, 1, 2, 3][a], f"{a}", repr(a * 2),
    ]


# abuse: STO-G010
class Hook:
    def __getattribute__(self, name):
        return "REACHED"


def run(kwargs):
    return Hook().anything
