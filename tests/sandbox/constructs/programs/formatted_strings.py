from decimal import Decimal


class Money:
    def __init__(self, n):
        self.n = n

    def __format__(self, spec):
        return f"{self.n:{spec or '.2f'}}€"

    def __repr__(self):
        return "Money!"


def run(kwargs):
    width, value, d = 10, 3.14159, {"a": [1, 2]}
    return [
        f"{value:{width}.3f}|{value!r:>9}|{d['a'][1]:03d}|{Money(2)}|{Money(3):>6}|{Money(1)!r}|{value = :.1f}|{{}}",
        "{0} {1[0]} {name!s:>4} {0.real}".format(5, [6], name="n"), "{:>{w}}".format("x", w=4), "{x}".format_map({"x": 1}),
        format(255, "#06x"), "%(a)s %%" % {"a": 1}, f"{Decimal('1.10')}", f"{'nested ' + f'{value:.0f}'}",
    ]


# abuse: STO-G101
def run(kwargs):
    text = "{0.__globals__}".format(run)
    return "REACHED" if "builtins" in text else "no"
