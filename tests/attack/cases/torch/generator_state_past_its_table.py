# /// stoilo-case
# idea = "states that kernels believe"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import torch


def run(kwargs):
    state = torch.get_rng_state()
    state[8:12].view(torch.int32)[0] = 624  # words left
    state[16:24].view(torch.int64)[0] = 624  # the next one: behind the last
    torch.set_rng_state(state)
    return "REACHED" if torch.rand(64).numel() == 64 else ""
