# /// stoilo-case
# idea = "averaged weights"
# level = "tensor"
# ///
"""An exponential moving average and stochastic weight averaging; early stopping."""
import copy
import math

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = copy.deepcopy(model)
        for p in self.shadow.parameters():
            p.requires_grad = False

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.shadow.parameters(), model.parameters()):
            mine.lerp_(theirs, 1 - self.decay)
        for mine, theirs in zip(self.shadow.buffers(), model.buffers()):
            mine.copy_(theirs)


class EarlyStopping(Exception):
    pass


def run(kwargs):
    torch.manual_seed(66)
    x = torch.randn(48, 3)
    y = torch.sin(x).sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    ema = EMA(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, waited, log, swa, n = math.inf, 0, [], None, 0
    try:
        for epoch in range(60):
            model.train()
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            with torch.no_grad():
                score = nn.functional.mse_loss(ema.shadow.eval()(x), y).item()
            log.append(score)
            if score < best - 1e-3:
                best, waited = score, 0
            else:
                waited += 1
                if waited > 4:
                    raise EarlyStopping(epoch)
            if epoch >= 10:
                n += 1
                now = [p.detach().clone() for p in model.parameters()]
                swa = now if swa is None else [a + (b - a) / n for a, b in zip(swa, now)]
    except EarlyStopping as stop:
        print("stopped in epoch", stop.args[0])
    return best, len(log), [part.norm().item() for part in swa]
