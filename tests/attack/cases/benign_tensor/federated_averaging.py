# /// stoilo-case
# idea = "several models"
# level = "tensor"
# ///
"""Federated averaging with compressed and clipped updates, each client on its own data."""
import copy

import torch
from torch import nn


class Client:
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(24, 3, generator=generator) + seed / 10
        self.y = (self.x.sum(1, keepdim=True) > 0).float()

    def train(self, model, epochs=2):
        local = copy.deepcopy(model)
        optimizer = torch.optim.SGD(local.parameters(), lr=0.2)
        for _ in range(epochs):
            loss = nn.functional.binary_cross_entropy_with_logits(local(self.x), self.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        old = model.state_dict()
        return {name: value - old[name] for name, value in local.state_dict().items()}, loss.item()


def ternary(update, generator):
    scale = update.abs().max()
    if scale == 0:
        return update
    chosen = torch.bernoulli(update.abs() / scale, generator=generator)
    return scale * update.sign() * chosen


def top_k(update, share=0.5):
    flat = update.flatten()
    k = max(1, int(share * flat.numel()))
    _, indices = flat.abs().topk(k)
    kept = torch.zeros_like(flat)
    kept[indices] = flat[indices]
    return kept.view_as(update)


def run(kwargs):
    torch.manual_seed(60)
    model = nn.Sequential(nn.Linear(3, 6), nn.Sigmoid(), nn.Linear(6, 1))
    clients = [Client(seed) for seed in range(4)]
    generator = torch.Generator().manual_seed(9)
    losses = []
    for round_number in range(8):
        updates, errors = zip(*(client.train(model) for client in clients))
        compress = top_k if round_number % 2 else (lambda u: ternary(u, generator))
        state = model.state_dict()
        for name in state:
            mean = torch.stack([compress(update[name]) for update in updates]).mean(0)
            state[name] = state[name] + mean
        model.load_state_dict(state)
        losses.append(sum(errors) / len(errors))
    return losses, {name: value for name, value in model.state_dict().items()}
