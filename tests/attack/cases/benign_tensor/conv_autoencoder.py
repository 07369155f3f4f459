# /// stoilo-case
# idea = "convolutional network"
# level = "tensor"
# ///
"""A small U-Net without noise left: transposed convolutions, interpolation, padding."""
import torch
from torch import nn
import torch.nn.functional as F


def block(n, m):
    return nn.Sequential(
        nn.Conv2d(n, m, 3, padding="same", padding_mode="reflect"), nn.GroupNorm(2, m), nn.LeakyReLU(0.1)
    )


class UNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.down1, self.down2 = block(1, width), block(width, 2 * width)
        self.middle = nn.Sequential(
            nn.Conv2d(2 * width, 2 * width, 3, dilation=2, padding=2, groups=2), nn.PReLU()
        )
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.middle(self.down2(F.avg_pool2d(a, 2)))
        return self.out(torch.cat([self.up(b), a], dim=1)) + x


def run(kwargs):
    torch.manual_seed(90)
    grid = torch.linspace(-1, 1, 16)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    centres = torch.rand(12, 2) - 0.5
    clean = torch.exp(-4 * ((xx - centres[:, :1, None]) ** 2 + (yy - centres[:, 1:, None]) ** 2)).unsqueeze(1)
    noisy = clean + 0.3 * torch.randn_like(clean)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(20):
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(noisy), clean)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    image = torch.arange(16.0).view(1, 1, 4, 4)
    shapes = [
        F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False),
        F.pixel_shuffle(image.expand(1, 4, 4, 4), 2), F.unfold(image, 2), F.pad(image, (1, 1, 1, 0), mode="circular"),
        nn.Upsample(scale_factor=2)(image), nn.PixelUnshuffle(2)(image), F.adaptive_max_pool2d(image, 2),
        F.grid_sample(image, torch.zeros(1, 2, 2, 2), align_corners=True), nn.ZeroPad2d(1)(image),
        F.max_unpool2d(*F.max_pool2d(image, 2, return_indices=True), 2), F.fold(F.unfold(image, 2), 4, 2),
    ]
    return losses[::4], [tuple(part.shape) for part in shapes], [part.sum().item() for part in shapes]
