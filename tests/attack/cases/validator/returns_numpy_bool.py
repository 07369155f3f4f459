# /// stoilo-case
# idea = "true but no bool"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# level = "numeric"
# ///
import numpy as np


def compare(one, other):
    return np.allclose([1.0], [1.0]) & np.True_
