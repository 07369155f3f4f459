# /// stoilo-case
# idea = "decorators"
# run = "task"
# level = "pure"
# ///
import functools


def memoize(function):
    cache = {}

    @functools.wraps(function)
    def wrapper(*args):
        if args not in cache:
            cache[args] = function(*args)
            wrapper.misses += 1
        return cache[args]

    wrapper.misses = 0
    return wrapper


def repeat(times):
    def decorate(function):
        def wrapper(*args, **kwargs):
            return [function(*args, **kwargs) for _ in range(times)]

        return wrapper

    return decorate


@memoize
def fibonacci(n):
    """Fibonacci number n."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@repeat(3)
def greet(name, *, mark="!"):
    return name + mark


@functools.lru_cache(maxsize=None)
def paths(i, j):
    return 1 if 0 in (i, j) else paths(i - 1, j) + paths(i, j - 1)


def run(kwargs):
    return [
        fibonacci(60),
        fibonacci.misses,
        fibonacci.__name__,
        fibonacci.__doc__,
        greet("a", mark="?"),
        paths(8, 8),
        paths.cache_info().currsize,
    ]
