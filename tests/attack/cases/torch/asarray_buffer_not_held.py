# /// stoilo-case
# idea = "buffers that torch borrows"
# level = "tensor"
# stopped_by = "language"
# goal = "inside"
# ///
import torch


def run(kwargs):
    memory = bytearray(64)
    value = torch.asarray(memory, dtype=torch.uint8)
    memory.extend(bytes(4096))
    others = [bytearray(b"\x07" * 64) for _ in range(1000)]
    return "REACHED" if value.max().item() and others else ""
