# /// stoilo-case
# idea = "paths in graph metadata"
# level = "tensor"
# stopped_by = "gate"
# code = "STO-P040"
# goal = "inside"
# ///
import torch


def run(kwargs):
    with torch.autograd.detect_anomaly(check_nan=False):
        root = (torch.ones(2, requires_grad=True) * 2).grad_fn
    return "REACHED" if "File" in "".join(root.metadata["traceback_"]) else ""
