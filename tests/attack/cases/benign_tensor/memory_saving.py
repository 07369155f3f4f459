# /// stoilo-case
# idea = "memory saving"
# level = "tensor"
# ///
"""Activations computed again instead of kept, low precision, and forks of the generator."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def seed_everything(seed):
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class Deep(nn.Module):
    def __init__(self, width=16, depth=4, saving=False):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1)) for _ in range(depth)
        )
        self.saving = saving

    def forward(self, x):
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.saving else block(x))
        return x


def gradients(saving):
    seed_everything(3)
    model = Deep(saving=saving)
    x = torch.randn(8, 16, requires_grad=True)
    model(x).pow(2).mean().backward()
    return [p.grad for p in model.parameters()] + [x.grad]


def run(kwargs):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    same = [torch.equal(a, b) for a, b in zip(gradients(True), gradients(False))]
    model = Deep().to(device).eval()
    stack = nn.Sequential(*model.blocks)
    x = torch.randn(2, 16, device=device, requires_grad=True)
    parts = checkpoint_sequential(stack, 2, x, use_reentrant=False)
    before = torch.rand(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inside = torch.rand(1)
    after = torch.rand(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(x.detach())
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    with torch.no_grad():
        padded = encoder(torch.ones(2, 3, 8), src_key_padding_mask=torch.tensor([[0, 0, 1], [0, 0, 0]]).bool())
    batched = torch.vmap(torch.dot)(torch.eye(3), torch.ones(3, 3))
    curvature = torch.func.hessian(lambda v: (v**3).sum())(torch.arange(3.0))
    return same, parts.detach(), (before, inside, after), str(low.dtype), low.detach().float(), padded, batched, curvature
