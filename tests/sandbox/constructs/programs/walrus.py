def run(kwargs):
    data = [3, 0, 5]
    while (n := data.pop()) and n > 1:
        last = n
    return [n, last, [y for x in range(4) if (y := x * x) > 1], (z := 3) + z]


# abuse: STO-G010
def run(kwargs):
    if (__builtins__ := {"a": 1}):
        return "REACHED"
