# /// stoilo-case
# idea = "variables of whoever calls"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# wider = true
# ///
from string import Template

import numpy as np


def run(kwargs):
    text = Template("$__all__").substitute(np.r_)
    return "REACHED" if "ascii_letters" in text else ""
