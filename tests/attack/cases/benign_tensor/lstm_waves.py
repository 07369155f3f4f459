# /// stoilo-case
# idea = "recurrent network"
# level = "tensor"
# ///
"""An LSTM that continues noisy waves."""
import torch
import torch.nn as nn


class Forecaster(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.hidden = hidden
        self.lstm = nn.LSTM(1, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, future=0):
        out, (h, c) = self.lstm(x)
        outputs = [self.head(out)]
        last = outputs[0][:, -1:]
        for _ in range(future):
            out, (h, c) = self.lstm(last, (h, c))
            last = self.head(out)
            outputs.append(last)
        return torch.cat(outputs, dim=1)


def run(kwargs):
    torch.manual_seed(7)
    t = torch.arange(40.0)
    phases = torch.rand(12, 1) * 6.28
    waves = torch.sin(0.35 * t + phases) + 0.05 * torch.randn(12, 40)
    inputs, targets = waves[:, :-1, None], waves[:, 1:, None]
    model = Forecaster()
    criterion = nn.MSELoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(20):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        future = model(inputs[:2], future=5)[:, -5:, 0]
    return {"losses": losses, "future": future}
