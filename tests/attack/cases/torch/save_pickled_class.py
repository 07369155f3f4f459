# /// stoilo-case
# idea = "torch unpickles"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import io

import torch


def run(kwargs):
    file = io.BytesIO()
    torch.save({"word": slice(1), "text": "REACHED"}, file)
    return "REACHED" if b"slice" in file.getvalue() else ""
