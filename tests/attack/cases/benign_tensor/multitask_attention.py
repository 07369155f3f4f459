# /// stoilo-case
# idea = "library attention"
# level = "tensor"
# ///
"""nn.MultiheadAttention with masks, a decoder layer, and two losses that share a trunk."""
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, width))
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.heads = nn.ModuleDict({"sum": nn.Linear(width, 1), "sign": nn.Linear(width, 2)})

    def forward(self, x, lengths):
        padding = torch.arange(x.size(1))[None] >= lengths[:, None]
        query = self.query.expand(x.size(0), -1, -1)
        pooled, weights = self.attend(query, x, x, key_padding_mask=padding)
        pooled = self.decoder(pooled, x, memory_key_padding_mask=padding).squeeze(1)
        return {name: head(pooled) for name, head in self.heads.items()}, weights.squeeze(1)


def run(kwargs):
    torch.manual_seed(85)
    x = torch.randn(20, 5, 8)
    lengths = torch.randint(1, 6, (20,))
    inside = (torch.arange(5)[None] < lengths[:, None]).float().unsqueeze(-1)
    total = (x * inside).sum((1, 2))
    model = Reader()
    log_variance = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": [log_variance], "lr": 0.05}], lr=0.01)
    losses = []
    for _ in range(20):
        out, weights = model(x, lengths)
        parts = torch.stack([
            nn.functional.mse_loss(out["sum"].squeeze(-1), total),
            nn.functional.cross_entropy(out["sign"], (total > 0).long()),
        ])
        loss = (parts * torch.exp(-log_variance) + log_variance).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(parts.tolist())
    return losses[::5], weights[0].detach(), bool((weights[lengths < 5][:, -1] == 0).all())
