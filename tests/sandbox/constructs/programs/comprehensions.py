def run(kwargs):
    rows = [[x * y for x in range(4) if x % 2] for y in range(3)]
    pairs = {(a, b): a ^ b for a in range(2) for b in range(2)}
    odd = {n for row in rows for n in row if (half := n // 2)}
    return [rows, sorted(pairs.items()), sorted(odd), sum(n * n for n in range(10)), half]


# abuse: STO-G010
def run(kwargs):
    [0 for __builtins__ in [{}]]
    return "REACHED"
