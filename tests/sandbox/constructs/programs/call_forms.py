def run(kwargs):
    def f(a, b=2, /, c=3, *rest, d, e=5, **more):
        return [a, b, c, rest, d, e, sorted(more.items())]

    head, options = [1, 2], {"d": 4, "z": 26}
    return [f(1, d=4), f(*head, 9, *[8], **options), f(1, **{"d": 0}, y=1), (lambda *a, k=1: (a, k))(5, k=6)]


# abuse: STO-G010
def run(kwargs):
    def f(**options):
        return "REACHED"

    return f(__builtins__=1)
