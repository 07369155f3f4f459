class Plugin:
    known = {}

    def __init_subclass__(cls, tag="", **options):
        super().__init_subclass__(**options)
        cls.tag = tag or cls.__name__.lower()
        cls.known[cls.tag] = cls


class Mean(Plugin):
    def run(self, values):
        return sum(values) / len(values)


class Largest(Plugin, tag="max"):
    def run(self, values):
        return max(values)


class Typed:
    @classmethod
    def __init_subclass__(cls):
        cls.fields = [name for name in ("a", "b") if hasattr(cls, name)]

    def __class_getitem__(cls, item):
        return f"{cls.__name__}[{item.__name__}]"


class Pair(Typed):
    a = 1


def run(kwargs):
    results = {tag: kind().run([1, 2, 6]) for tag, kind in Plugin.known.items()}
    return [results, Pair.fields, Pair[int], Largest.tag]


# abuse: STO-G105
from queue import Queue


class Base(Queue):
    def __init_subclass__(cls):
        cls.word = "REACHED"


class Below(Base):
    pass


def run(kwargs):
    return Below.word
