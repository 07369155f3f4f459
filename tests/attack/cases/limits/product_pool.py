# /// stoilo-case
# idea = "allocate by libraries"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 134217728 }
# ///
from itertools import product


def run(kwargs):
    pairs = product(range(1 << 24))
    return "REACHED" if next(pairs) else ""
