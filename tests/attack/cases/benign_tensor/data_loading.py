# /// stoilo-case
# idea = "data sets and loaders"
# level = "tensor"
# ///
"""Data sets, samplers and loaders, as a training loop uses them."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split


class Parabolas(Dataset):
    def __init__(self, n, transform=None):
        self.x = torch.linspace(-1, 1, n)
        self.transform = transform

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index].reshape(1)
        y = x**2
        if self.transform:
            x = self.transform(x)
        return x, y


def run(kwargs):
    torch.manual_seed(19)
    whole = Parabolas(60, transform=lambda x: torch.cat([x, x.abs()]))
    train, held_out = random_split(whole, [0.75, 0.25], generator=torch.Generator().manual_seed(2))
    loader = DataLoader(train, batch_size=8, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses, sizes = [], []
    for epoch in range(6):
        running = 0.0
        for i, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item()
        losses.append(running / (i + 1))
        sizes.append(x.shape[0])
    tensors = TensorDataset(torch.arange(10), torch.arange(10) ** 2)
    pairs = [[a.tolist(), b.tolist()] for a, b in DataLoader(tensors, batch_size=4)]
    collate = DataLoader(Subset(whole, range(5)), batch_size=5, collate_fn=lambda rows: len(rows))
    with torch.no_grad():
        error = sum((model(x) - y).abs().item() for x, y in held_out) / len(held_out)
    return losses, sizes, pairs, list(collate), error, len(loader), list(held_out.indices)
