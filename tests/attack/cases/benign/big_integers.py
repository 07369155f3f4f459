# /// stoilo-case
# idea = "number theory"
# ///
"""Miller-Rabin, Pollard rho, RSA, continued fractions, big factorials."""
import math
import random
import sys
from itertools import count, islice, takewhile


def is_prime(n, rounds=20, rng=random.Random(0)):
    if n < 2:
        return False
    for p in (2, 3, 5, 7, 11, 13):
        if n % p == 0:
            return n == p
    d, s = n - 1, 0
    while d % 2 == 0:
        d //= 2
        s += 1
    for _ in range(rounds):
        x = pow(rng.randrange(2, n - 1), d, n)
        if x in (1, n - 1):
            continue
        for _ in range(s - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def rho(n):
    if n % 2 == 0:
        return 2
    for c in count(1):
        x = y = 2
        d = 1
        while d == 1:
            x = (x * x + c) % n
            y = (y * y + c) % n
            y = (y * y + c) % n
            d = math.gcd(abs(x - y), n)
        if d != n:
            return d


def factor(n):
    if n == 1:
        return []
    if is_prime(n):
        return [n]
    d = rho(n)
    return sorted(factor(d) + factor(n // d))


def sieve(n):
    flags = bytearray([1]) * (n + 1)
    flags[:2] = b"\0\0"
    for i in range(2, math.isqrt(n) + 1):
        if flags[i]:
            flags[i * i :: i] = bytes(len(range(i * i, n + 1, i)))
    return [i for i, f in enumerate(flags) if f]


def convergents(a0, period):
    h, k, h1, k1 = 1, 0, a0, 1
    yield h1, k1
    while True:
        for a in period:
            h, h1 = h1, a * h1 + h
            k, k1 = k1, a * k1 + k
            yield h1, k1


def run(kwargs):
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(5000)
    p, q = 1_000_003, 1_000_033
    n, e = p * q, 65537
    d = pow(e, -1, (p - 1) * (q - 1))
    message = int.from_bytes(b"stoilo"[:4], "big")
    pell = next((h, k) for h, k in convergents(7, [1, 1, 1, 14]) if h * h - 60 * k * k == 1) if False else next(islice(convergents(1, [2]), 9, 10))
    depth = (lambda f: f(f, 2000))(lambda f, n: 0 if n == 0 else 1 + f(f, n - 1))
    return {
        "primes": sieve(60),
        "factor": factor(2**64 + 1),
        "rsa": pow(pow(message, e, n), d, n) == message,
        "fact": len(str(math.factorial(3000))),
        "pell": list(pell),
        "mersenne": list(takewhile(lambda p: p < 130, filter(lambda p: is_prime(2**p - 1), count(2)))),
        "depth": depth,
        "crt": sum(r * (210 // m) * pow(210 // m, -1, m) for r, m in ((1, 2), (2, 3), (3, 5), (4, 7))) % 210,
    }
