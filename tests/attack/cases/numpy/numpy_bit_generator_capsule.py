# /// stoilo-case
# idea = "numpy bit generators"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from contextlib import nullcontext

import numpy as np


class Fake:
    """Outlives the generator whose memory its capsule points to."""


def run(kwargs):
    fake = Fake()
    fake.capsule = np.random.PCG64(1).capsule
    fake.lock = nullcontext()
    return "REACHED" if np.random.Generator(fake) else ""
