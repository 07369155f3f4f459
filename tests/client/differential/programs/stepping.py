"""Tasks that yield states, for capture: plain, with travelling data, spread."""

import random

SHARED = {"scale": [2.0, 3.0]}


def walk(kwargs, state=None):
    done, total = state or (0, 0.0)
    while done < kwargs["steps"]:
        total += random.random()
        done += 1
        yield done, total
    return total


def scaled(kwargs, state=None):
    total = yield from walk(kwargs, state)
    SHARED["scale"].append(total)
    return [total * one for one in SHARED["scale"]]


def added(first, second, *, state=None):
    for done in range(state or 0, 3):
        yield done + 1
    return first + second
