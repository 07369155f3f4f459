def place(row, n, columns, falling, rising):
    if row == n:
        return 1
    found = 0
    for column in range(n):
        if column in columns or row - column in falling or row + column in rising:
            continue
        found += place(
            row + 1,
            n,
            columns | {column},
            falling | {row - column},
            rising | {row + column},
        )
    return found


def run(n):
    return place(0, n, frozenset(), frozenset(), frozenset())
