def run(kwargs):
    big = 123456789 ** 40
    return [
        0xFF, 0o17, 0b101, 1_000, 1e-3, 3j, -2.5, big, b"a\x00", r"\n", "a" "b", (), (1,), [], {}, {1: {2: 3}}, {1, 2} == {2, 1},
        None, True, 1 if ... is Ellipsis else 0, [*range(3), *"ab"], {**{"a": 1}, "b": 2}, 2 ** 0.5, 7 // -2, 7 % -2, divmod(-7, 2),
        str(NotImplemented),
    ]


# abuse: STO-G020
def run(kwargs):
    return "REACHED" if compile("1", "", "eval") else "no"
