# /// stoilo-case
# idea = "einsum"
# level = "tensor"
# ///
"""Attention, bilinear forms and tensor contractions written with einsum."""
import torch
from torch import einsum, nn


class Attention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=8):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)
        self.bias = nn.Parameter(torch.zeros(heads, 1, 1))
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = map(
            lambda part: part.reshape(b, n, self.heads, -1).permute(0, 2, 1, 3),
            self.to_qkv(x).chunk(3, dim=-1),
        )
        sim = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale + self.bias
        attn = sim.softmax(dim=-1)
        out = einsum("b h i j, b h j d -> b h i d", attn, v)
        return self.to_out(out.permute(0, 2, 1, 3).reshape(b, n, -1))


def run(kwargs):
    torch.manual_seed(8)
    x = torch.randn(8, 6, 12)
    target = x.flip(1)
    model = Attention(12)
    position = nn.Parameter(0.1 * torch.randn(6, 12))
    optimizer = torch.optim.AdamW([*model.parameters(), position], lr=0.02, amsgrad=True)
    losses = []
    for _ in range(25):
        loss = (model(x + position) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    a, b = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(3, 4)
    forms = [
        torch.einsum("ij,jk->ik", a, b), torch.einsum("ii", a @ a.T), torch.einsum("ij->j", a),
        torch.einsum("...ij,...jk", a[None], b[None]), torch.tensordot(a, b, dims=1),
        torch.einsum("i,ij,j->", torch.ones(2), a, torch.ones(3)), torch.kron(a, a),
    ]
    scaled = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    return losses, forms, scaled.sum((1, 2))
