# expect: refused STO-G101
# level: numeric
import numpy as np


def run(kwargs):
    state = np.random.RandomState(1)
    kind, key, position, *rest = state.get_state()
    state.set_state((kind, key, 600, *rest))
    return "ESCAPED"
