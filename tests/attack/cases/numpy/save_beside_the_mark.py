# /// stoilo-case
# idea = "arrays in files in memory"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import numpy as np


class Words:
    def __init__(self, path):
        self.path = path

    def write(self, data):
        raise RuntimeError("REACHED")


def run(kwargs):
    np.save(Words(kwargs["mark"]), np.zeros(2))
