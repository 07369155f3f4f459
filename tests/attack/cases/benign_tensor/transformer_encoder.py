# /// stoilo-case
# idea = "transformer"
# level = "tensor"
# ///
"""The library's encoder layers: a classifier of bracket strings."""
import torch
from torch import nn


class PositionalEncoding(nn.Module):
    def __init__(self, width, length=32):
        super().__init__()
        position = torch.arange(length).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-torch.log(torch.tensor(10000.0)) / width))
        table = torch.zeros(1, length, width)
        table[0, :, 0::2] = torch.sin(position * rate)
        table[0, :, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[:, : x.shape[1]]


class Classifier(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embedding = nn.Embedding(3, width, padding_idx=0)
        self.position = PositionalEncoding(width)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=32, dropout=0.0, activation="gelu",
            batch_first=True, norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 1)

    def forward(self, tokens):
        padding = tokens == 0
        hidden = self.encoder(self.position(self.embedding(tokens)), src_key_padding_mask=padding)
        keep = (~padding).unsqueeze(-1).to(hidden.dtype)
        return self.out((hidden * keep).sum(1) / keep.sum(1)).squeeze(-1)


def balanced(row):
    depth = 0
    for token in row:
        if token:
            depth += 1 if token == 1 else -1
            if depth < 0:
                return False
    return depth == 0


def data(n, generator):
    tokens = torch.randint(1, 3, (n, 8), generator=generator)
    lengths = 2 * torch.randint(1, 5, (n, 1), generator=generator)
    tokens = tokens.masked_fill(torch.arange(8) >= lengths, 0)
    return tokens, torch.tensor([float(balanced(row)) for row in tokens.tolist()])


def run(kwargs):
    torch.manual_seed(3)
    x, y = data(128, torch.Generator().manual_seed(9))
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    losses = []
    for _ in range(25):
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        right = ((model(x) > 0) == (y > 0.5)).sum().item()
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    return losses[::6], right, mask
