def escape(c, limit):
    z = 0j
    for step in range(limit):
        if z.real * z.real + z.imag * z.imag > 4.0:
            return step
        z = z * z + c
    return limit


def run(n):
    total = 0
    for row in range(n):
        for column in range(n):
            point = complex(-2.0 + 3.0 * column / n, -1.5 + 3.0 * row / n)
            total += escape(point, 50)
    return total
