# /// stoilo-case
# idea = "new immutable"
# run = "task"
# level = "pure"
# ///
class Celsius(float):
    def __new__(cls, value):
        return super().__new__(cls, round(value, 1))

    def to_fahrenheit(self):
        return self * 9 / 5 + 32


class Pair(tuple):
    def __new__(cls, a, b):
        self = super().__new__(cls, (a, b))
        return self

    def swap(self):
        return Pair(self[1], self[0])


class Name(str):
    def initials(self):
        return "".join(word[0] for word in self.split())


def run(kwargs):
    return [
        Celsius(21.37).to_fahrenheit(),
        tuple(Pair(1, 2).swap()),
        Name("ada love").initials(),
        "{}".format(Name("q")),
    ]
