def run(kwargs):
    best, seen = None, []

    def visit(n):
        nonlocal best, seen
        seen = [*seen, n]
        if best is None or n > best:
            best = n

    for n in (3, 7, 5):
        visit(n)
    return [best, seen]


# abuse: STO-G010
def run(kwargs):
    def outer():
        __class__ = 1

        def inner():
            nonlocal __class__
            __class__ = "REACHED"

        inner()
        return __class__

    return outer()
