# /// stoilo-case
# idea = "dynamic programming"
# run = "task"
# level = "pure"
# ///
from functools import cache


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, previous + (x != y)),
            )
    return row[-1]


@cache
def knapsack(weights, values, room):
    if not weights:
        return 0
    best = knapsack(weights[1:], values[1:], room)
    if weights[0] <= room:
        best = max(
            best, values[0] + knapsack(weights[1:], values[1:], room - weights[0])
        )
    return best


def run(kwargs):
    table = [[0] * 5 for _ in range(5)]
    for i in range(5):
        for j in range(5):
            table[i][j] = 1 if not i or not j else table[i - 1][j] + table[i][j - 1]
    return [
        edit_distance("kitten", "sitting"),
        knapsack((3, 4, 5), (4, 5, 6), 8),
        table,
    ]
