# /// stoilo-case
# idea = "numpy bit generators"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    state = np.random.RandomState(1)
    kind, key, position, *rest = state.get_state()
    state.set_state((kind, key, 600, *rest))
    return "REACHED"
