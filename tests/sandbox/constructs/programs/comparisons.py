def run(kwargs):
    a, b = 3, [3]
    return [1 < a <= 3 != 4, a in b, a not in b, b is b, b is not [3], (1, 2) < (1, 3), not a == 3, {1} <= {1, 2}]


# abuse: STO-G010
class Any:
    def __instancecheck__(self, other):
        return True


def run(kwargs):
    return "REACHED" if isinstance(3, Any()) else "no"
