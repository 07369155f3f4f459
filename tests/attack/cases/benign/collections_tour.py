# /// stoilo-case
# idea = "collections tour"
# run = "task"
# level = "pure"
# ///
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple

Point = namedtuple("Point", "x y", defaults=[0])


class Grid(namedtuple("Grid", ["rows", "cols"])):
    def size(self):
        return self.rows * self.cols


class Bag(dict):
    def __missing__(self, key):
        self[key] = value = key * 2
        return value


class Series(list):
    def mean(self):
        return sum(self) / len(self)


def run(kwargs):
    groups = defaultdict(list)
    for word in "one two three four five six".split():
        groups[len(word)].append(word)
    window = deque(maxlen=3)
    sums = []
    for x in range(6):
        window.append(x)
        sums.append(sum(window))
    counts = Counter("mississippi")
    counts.update("miss")
    chain = ChainMap({"a": 1}, {"a": 2, "b": 3})
    bag = Bag()
    ordered = OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    p = Point(1)
    return [
        dict(groups),
        sums,
        counts.most_common(2),
        chain["a"] + chain["b"],
        bag["q"],
        dict(bag),
        list(ordered),
        tuple(p),
        repr(p._replace(y=5)),
        Point._fields,
        Grid(2, 3).size(),
        Series([1, 2, 6]).mean(),
        Point._make([4, 5])._asdict(),
    ]
