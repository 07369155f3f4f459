import math
import random


def run(n):
    source = random.Random(7)
    total = squares = 0.0
    for _ in range(n):
        x = source.gauss(0.0, 1.0)
        value = math.exp(-x * x / 2.0) if source.random() < 0.5 else math.sin(x)
        total += value
        squares += value * value
    mean = total / n
    return mean, math.sqrt(squares / n - mean * mean)
