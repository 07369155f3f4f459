# /// stoilo-case
# idea = "optimisation"
# ///
"""Evolve expressions as tuples, tournament selection, elitism, seeded random."""
import math
import operator
import random
from copy import deepcopy
from functools import lru_cache

OPS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
rng = random.Random(20)


def grow(depth):
    if depth == 0 or rng.random() < 0.2:
        return "x" if rng.random() < 0.6 else rng.randint(-3, 3)
    return [rng.choice(list(OPS)), grow(depth - 1), grow(depth - 1)]


def evaluate(tree, x):
    match tree:
        case "x":
            return x
        case [op, left, right]:
            return OPS[op](evaluate(left, x), evaluate(right, x))
        case number:
            return number


def nodes(tree, path=()):
    yield path
    if isinstance(tree, list):
        for i in (1, 2):
            yield from nodes(tree[i], (*path, i))


def at(tree, path):
    for i in path:
        tree = tree[i]
    return tree


def replace(tree, path, new):
    if not path:
        return deepcopy(new)
    tree = deepcopy(tree)
    parent = at(tree, path[:-1])
    parent[path[-1]] = deepcopy(new)
    return tree


POINTS = [(x / 4, (x / 4) ** 3 - 2 * x / 4 + 1) for x in range(-8, 9)]


def fitness(tree):
    error = math.sqrt(sum((evaluate(tree, x) - y) ** 2 for x, y in POINTS) / len(POINTS))
    return error + 0.01 * sum(1 for _ in nodes(tree))


def show(tree):
    return str(tree) if not isinstance(tree, list) else f"({show(tree[1])} {tree[0]} {show(tree[2])})"


def run(kwargs):
    population = [grow(3) for _ in range(60)]
    history = []
    for generation in range(12):
        ranked = sorted(population, key=fitness)
        history.append(fitness(ranked[0]))
        nxt = ranked[:2]
        while len(nxt) < len(population):
            a, b = (min(rng.sample(population, 4), key=fitness) for _ in range(2))
            child = replace(a, rng.choice(list(nodes(a))), at(b, rng.choice(list(nodes(b)))))
            if rng.random() < 0.3:
                child = replace(child, rng.choice(list(nodes(child))), grow(2))
            nxt.append(child if sum(1 for _ in nodes(child)) < 40 else a)
        population = nxt
    print(show(ranked[0]))
    return history
