# /// stoilo-case
# idea = "monte carlo pi"
# run = "task"
# level = "pure"
# ///
import random
import statistics


def estimate(seed, n):
    rng = random.Random(seed)
    inside = sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(n))
    return 4 * inside / n


def run(kwargs):
    values = [estimate(seed, 400) for seed in range(5)]
    random.seed(7)
    drawn = [random.gauss(0, 1), random.randint(1, 6), random.choice("abc")]
    deck = list(range(8))
    random.shuffle(deck)
    return [
        values,
        statistics.mean(values),
        statistics.stdev(values),
        drawn,
        deck,
        random.sample(deck, 3),
    ]
