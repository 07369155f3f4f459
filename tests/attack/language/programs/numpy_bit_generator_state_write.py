# expect: refused STO-G102
# level: numeric
import numpy as np


def run(kwargs):
    generator = np.random.MT19937(1)
    state = generator.state
    generator.state = state
    return "ESCAPED"
