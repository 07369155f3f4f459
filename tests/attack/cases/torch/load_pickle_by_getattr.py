# /// stoilo-case
# idea = "torch unpickles"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import io

import torch


def run(kwargs):
    pickled = b"cbuiltins\nprint\n(VREACHED\ntR."
    load = getattr(torch, "lo" + "ad")
    return str(load(io.BytesIO(pickled), weights_only=False))
