# /// stoilo-case
# idea = "kernels that trust shapes"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import torch
from torch.nn.functional import ctc_loss


def run(kwargs):
    scores = torch.zeros(5, 1, 4).log_softmax(2)
    targets = torch.full((1, 3), 5)
    ctc_loss(scores, targets, torch.tensor([4]), torch.tensor([3]), reduction="sum")
    return "REACHED"
