# /// stoilo-case
# idea = "convolutional network"
# level = "tensor"
# ///
"""Squares, crosses and stripes on noise, told apart by a convolutional network."""
import torch
from torch import nn, optim
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, classes=3):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout2d(0.1)
        self.fc = nn.Linear(16 * 3 * 3, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = F.relu(self.norm(self.conv2(x)))
        x = self.drop(x)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc(x), dim=1)


def images(n, generator):
    kinds = torch.randint(0, 3, (n,), generator=generator)
    out = 0.3 * torch.randn(n, 1, 12, 12, generator=generator)
    for i, kind in enumerate(kinds.tolist()):
        row, column = torch.randint(0, 6, (2,), generator=generator).tolist()
        patch = out[i, 0, row:row + 6, column:column + 6]
        if kind == 0:
            patch += 1.0
        elif kind == 1:
            patch[2:4, :] += 1.5
            patch[:, 2:4] += 1.5
        else:
            patch[::2] += 1.5
    return out, kinds


def train(model, loader, optimizer):
    model.train()
    total = 0.0
    for data, target in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(data)
    return total


@torch.no_grad()
def test(model, data, target):
    model.eval()
    prediction = model(data).argmax(dim=1, keepdim=True)
    return prediction.eq(target.view_as(prediction)).sum().item()


def run(kwargs):
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(5)
    x, y = images(96, generator)
    loader = [(x[i:i + 16], y[i:i + 16]) for i in range(0, 64, 16)]
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    totals = [train(model, loader, optimizer) for _ in range(6)]
    right = test(model, x[64:], y[64:])
    return totals, right, model.norm.running_mean, sum(p.numel() for p in model.parameters())
