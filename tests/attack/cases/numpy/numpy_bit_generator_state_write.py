# /// stoilo-case
# idea = "numpy bit generators"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import numpy as np


def run(kwargs):
    generator = np.random.MT19937(1)
    state = generator.state
    generator.state = state
    return "REACHED"
