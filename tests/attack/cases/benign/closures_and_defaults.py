# /// stoilo-case
# idea = "closures and defaults"
# run = "task"
# level = "pure"
# ///
def make_polynomial(*coefficients, **options):
    scale = options.get("scale", 1)

    def evaluate(x, *, offset=0):
        total = 0
        for c in reversed(coefficients):
            total = total * x + c
        return scale * total + offset

    return evaluate


def positional(a, b, /, c, *, d=4):
    return (a, b, c, d)


def spread(*args, **kwargs):
    return args, sorted(kwargs.items())


def run(kwargs):
    p = make_polynomial(1, 2, 3, scale=2)
    late = [lambda i=i: i * i for i in range(4)]
    args, named = (1, 2), {"c": 3}
    return [
        p(2),
        p(2, offset=1),
        [f() for f in late],
        positional(*args, **named),
        spread(*range(2), *"ab", x=1, **{"y": 2}),
        (lambda *a, **k: (a, k))(1, z=2),
        [*range(3), *{4}],
        {**named, "d": 1},
    ]
