class Base:
    kind = "base"

    def __init__(self, n, **options):
        super().__init__(**options)
        self.n = n

    def describe(self):
        return f"{self.kind} {self.n}"


class Loud:
    def __init__(self, volume=1):
        self.volume = volume

    def describe(self):
        return "?" * self.volume


class Child(Base, Loud):
    kind = "child"

    def __init__(self, n):
        super().__init__(n, volume=3)

    def describe(self):
        return super().describe() + super(Base, self).describe()


def run(kwargs):
    child = Child(4)
    return [child.describe(), isinstance(child, Loud), issubclass(Child, Base), child.volume]


# abuse: STO-G101
class Child(int):
    def read(self):
        return super().__reduce_ex__(2)


def run(kwargs):
    return "REACHED" if Child(3).read() else "no"
