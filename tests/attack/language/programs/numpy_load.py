# expect: user_error STO-G200
# level: numeric
import io

import numpy as np


def run(kwargs):
    return "ESCAPED" if np.load else ""
