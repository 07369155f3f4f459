# /// stoilo-case
# idea = "torch reads files"
# level = "tensor"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import torch


def run(kwargs):
    size = 32
    found = torch.from_file(kwargs["canary"], shared=False, size=size, dtype=torch.uint8)
    return bytes(found.tolist()).decode()
