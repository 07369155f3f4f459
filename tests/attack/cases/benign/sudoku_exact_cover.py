# /// stoilo-case
# idea = "constraint solving"
# ///
"""Algorithm X with dictionaries, N queens as generators, DPLL."""
from itertools import product


def solve(X, Y, solution=None):
    solution = [] if solution is None else solution
    if not X:
        yield list(solution)
        return
    c = min(X, key=lambda c: (len(X[c]), str(c)))
    for r in sorted(X[c]):
        solution.append(r)
        cols = select(X, Y, r)
        yield from solve(X, Y, solution)
        deselect(X, Y, r, cols)
        solution.pop()


def select(X, Y, r):
    cols = []
    for j in Y[r]:
        for i in X[j]:
            for k in Y[i]:
                if k != j:
                    X[k].remove(i)
        cols.append(X.pop(j))
    return cols


def deselect(X, Y, r, cols):
    for j in reversed(Y[r]):
        X[j] = cols.pop()
        for i in X[j]:
            for k in Y[i]:
                if k != j:
                    X[k].add(i)


def sudoku(size, grid):
    R, C = size
    N = R * C
    X = [("rc", rc) for rc in product(range(N), repeat=2)] + [(k, v) for k in ("rn", "cn", "bn") for v in product(range(N), range(1, N + 1))]
    Y = {}
    for r, c, n in product(range(N), range(N), range(1, N + 1)):
        b = (r // R) * R + (c // C)
        Y[r, c, n] = [("rc", (r, c)), ("rn", (r, n)), ("cn", (c, n)), ("bn", (b, n))]
    X = {j: set() for j in X}
    for i, row in Y.items():
        for j in row:
            X[j].add(i)
    for i, row in enumerate(grid):
        for j, n in enumerate(row):
            if n:
                select(X, Y, (i, j, n))
    for solution in solve(X, Y):
        for r, c, n in solution:
            grid[r][c] = n
        yield grid


def queens(n, row=0, cols=0, d1=0, d2=0):
    if row == n:
        return 1
    total, free = 0, ~(cols | d1 | d2) & ((1 << n) - 1)
    while free:
        bit = free & -free
        free ^= bit
        total += queens(n, row + 1, cols | bit, (d1 | bit) << 1, (d2 | bit) >> 1)
    return total


def dpll(clauses, model=()):
    clauses = [c for c in clauses if not any(l in model for l in c)]
    clauses = [[l for l in c if -l not in model] for c in clauses]
    if not clauses:
        return sorted(model, key=abs)
    if any(not c for c in clauses):
        return None
    unit = next((c[0] for c in clauses if len(c) == 1), None)
    for lit in [unit] if unit else [clauses[0][0], -clauses[0][0]]:
        if (found := dpll(clauses, (*model, lit))) is not None:
            return found
    return None


def run(kwargs):
    grid = [[int(ch) for ch in row] for row in ("0030", "4000", "0002", "0300")]
    answer = [[list(r) for r in g] for g in sudoku((2, 2), grid)]
    return {"sudoku": answer, "queens": [queens(n) for n in range(1, 9)], "sat": dpll([[1, 2], [-1, 3], [-2, -3], [2, 3]]), "unsat": dpll([[1], [-1]])}
