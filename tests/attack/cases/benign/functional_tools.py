# /// stoilo-case
# idea = "functional tools"
# run = "task"
# level = "pure"
# kwargs = { parts = 3 }
# ///
import functools
import itertools
import operator


def compose(*functions):
    return functools.reduce(lambda f, g: lambda x: g(f(x)), functions)


class Circle:
    def __init__(self, r):
        self.r = r

    @functools.cached_property
    def area(self):
        return 3 * self.r**2

    @staticmethod
    def unit():
        return Circle(1)

    @classmethod
    def scaled(cls, k):
        return cls(cls.unit().r * k)


@functools.total_ordering
class Version:
    def __init__(self, text):
        self.parts = tuple(map(int, text.split(".")))

    def __eq__(self, other):
        return self.parts == other.parts

    def __lt__(self, other):
        return self.parts < other.parts


def run(kwargs):
    pairs = [("b", 2), ("a", 2), ("c", 1)]
    ordered = sorted(pairs, key=operator.itemgetter(1, 0))
    groups = {
        k: [x for x, _ in g]
        for k, g in itertools.groupby(ordered, operator.itemgetter(1))
    }
    circle = Circle.scaled(2)
    return [
        compose(lambda x: x + 1, lambda x: x * 2)(3),
        ordered,
        groups,
        list(itertools.accumulate([1, 2, 3], operator.mul)),
        list(itertools.islice(itertools.count(5, 5), 3)),
        list(map(list, itertools.product("ab", repeat=2))),
        functools.partial(pow, 2)(5),
        sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
        circle.area,
        circle.area,
        Version("1.10") >= Version("1.9"),
        max(["1.2", "1.10"], key=Version),
        any(x > 2 for x in range(4)) and all(range(1, 3)),
        list(zip("ab", range(2), strict=True)),
        list(filter(None, [0, 1, "", 2])),
    ]
