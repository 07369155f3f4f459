import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(8, 48, num_layers=2, batch_first=True)
        self.head = nn.Linear(48, 1)

    def forward(self, x):
        states, _ = self.cells(x)
        return self.head(states[:, -1])


def run(n):
    torch.manual_seed(4)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(16, 24, 8), torch.randn(16, 1)
    for _ in range(n):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item()
