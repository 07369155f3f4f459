# /// stoilo-case
# idea = "state with names that libraries look for"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import copy

import torch
from torch import nn, optim


class Schedule:
    def __call__(self, epoch):
        return 1.0


def run(kwargs):
    seen = []
    schedule = Schedule()
    optimizer = optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, schedule)
    state = scheduler.state_dict()
    state["lr_lambdas"] = [{"__deepcopy__": seen.append}]
    scheduler.load_state_dict(state)
    copy.deepcopy(schedule)
    return "REACHED" if type(seen[0]) is dict else ""
