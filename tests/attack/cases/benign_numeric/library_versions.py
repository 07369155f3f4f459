# /// stoilo-case
# idea = "a script prints its library's version"
# level = "numeric"
# ///
import numpy as np


def run(kwargs):
    print("numpy", np.__version__)
    return int(np.__version__.split(".")[0]) >= 2
