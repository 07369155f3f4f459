# /// stoilo-case
# idea = "library members that write on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# level = "tensor"
# wider = true
# ///
import torch


class Fake:
    _buffers = {}
    _non_persistent_buffers_set = set()


def run(kwargs):
    torch.nn.Module.register_buffer(Fake, "taken", None)
    return "REACHED" if "taken" in Fake._buffers else ""
