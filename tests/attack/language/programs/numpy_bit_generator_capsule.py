# expect: refused STO-G101
# level: numeric
from contextlib import nullcontext

import numpy as np


class Fake:
    """Outlives the generator whose memory its capsule points to."""


def run(kwargs):
    fake = Fake()
    fake.capsule = np.random.PCG64(1).capsule
    fake.lock = nullcontext()
    return "ESCAPED" if np.random.Generator(fake) else ""
