def run(kwargs):
    def counter():
        n = 0

        def step(by=1):
            nonlocal n
            n += by
            return n

        return step

    step, other = counter(), counter()
    functions = [lambda i=i: i * 10 for i in range(3)]
    return [step(), step(5), other(), [f() for f in functions]]


# abuse: STO-G101
def run(kwargs):
    secret = "REACHED"

    def f():
        return secret

    return f.__closure__[0].cell_contents
