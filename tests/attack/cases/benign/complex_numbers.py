# /// stoilo-case
# idea = "complex numbers"
# run = "task"
# level = "pure"
# ///
import cmath


def mandelbrot(c, limit=50):
    z = 0j
    for n in range(limit):
        if abs(z) > 2:
            return n
        z = z * z + c
    return limit


def fft(signal):
    n = len(signal)
    if n == 1:
        return signal
    even, odd = fft(signal[::2]), fft(signal[1::2])
    twiddled = [cmath.exp(-2j * cmath.pi * k / n) * odd[k] for k in range(n // 2)]
    return [e + t for e, t in zip(even, twiddled)] + [
        e - t for e, t in zip(even, twiddled)
    ]


def run(kwargs):
    grid = [
        [mandelbrot(complex(x / 4, y / 4)) for x in range(-8, 3)] for y in range(-2, 3)
    ]
    return [grid, fft([1, 2, 3, 4, 0, 0, 0, 0]), cmath.polar(1j), (3 + 4j).conjugate()]
