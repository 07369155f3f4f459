# /// stoilo-case
# idea = "simpson integral"
# run = "task"
# level = "pure"
# kwargs = { parts = 3 }
# ///
def integrate(f, a, b, n):
    h = (b - a) / n
    total = f(a) + f(b)
    for i in range(1, n):
        total += (4 if i % 2 else 2) * f(a + i * h)
    return total * h / 3


def run(kwargs):
    f = lambda x: x**3 - 2 * x + 1
    return [integrate(f, k, k + 1, 100) for k in range(kwargs["parts"])]
