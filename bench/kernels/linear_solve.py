def solve(a, b):
    n = len(a)
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(a[i][k]))
        a[k], a[pivot] = a[pivot], a[k]
        b[k], b[pivot] = b[pivot], b[k]
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            for j in range(k, n):
                a[i][j] -= factor * a[k][j]
            b[i] -= factor * b[k]
    x = [0.0] * n
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - sum([a[i][j] * x[j] for j in range(i + 1, n)])) / a[i][i]
    return x


def run(n):
    a = [[1.0 / (1 + abs(i - j)) + (i == j) for j in range(n)] for i in range(n)]
    return solve(a, [float(i) for i in range(n)])[:3]
