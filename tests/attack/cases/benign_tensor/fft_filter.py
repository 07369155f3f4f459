# /// stoilo-case
# idea = "spectral methods"
# level = "tensor"
# ///
"""A filter learned in the frequency domain, and a Fourier layer."""
import torch
from torch import nn


class SpectralConv(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        scale = 1 / channels
        self.modes = modes
        self.weights = nn.Parameter(scale * torch.rand(channels, channels, modes, dtype=torch.cfloat))

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        out = torch.zeros(*x.shape[:2], x.size(-1) // 2 + 1, dtype=torch.cfloat)
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", spectrum[:, :, : self.modes], self.weights)
        return torch.fft.irfft(out, n=x.size(-1))


class Operator(nn.Module):
    def __init__(self, channels=6):
        super().__init__()
        self.lift = nn.Conv1d(1, channels, 1)
        self.spectral = SpectralConv(channels, 5)
        self.local = nn.Conv1d(channels, channels, 1)
        self.project = nn.Conv1d(channels, 1, 1)

    def forward(self, x):
        x = self.lift(x)
        x = nn.functional.gelu(self.spectral(x) + self.local(x))
        return self.project(x)


def run(kwargs):
    torch.manual_seed(14)
    grid = torch.linspace(0, 2 * torch.pi, 33)[:-1]
    a, b = torch.rand(2, 24, 1, 1)
    x = a * torch.sin(grid) + b * torch.cos(2 * grid)
    y = a * torch.cos(grid) - 2 * b * torch.sin(2 * grid)
    model = Operator()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (model(x) - y).norm() / y.norm()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    signal = torch.randn(16, dtype=torch.double)
    spectrum = torch.fft.fftshift(torch.fft.fft(signal, norm="ortho"))
    power = (spectrum.abs() ** 2).sum() - (signal**2).sum()
    image = torch.fft.ifft2(torch.fft.fft2(torch.eye(4))).real
    windows = torch.hann_window(8)
    frames = torch.stft(signal.float(), n_fft=8, window=windows, return_complex=True)
    back = torch.istft(frames, n_fft=8, window=windows, length=16)
    near = torch.allclose(back, signal.float(), atol=1e-5)
    return losses[::6], power.abs().item() < 1e-9, image, torch.fft.fftfreq(5), near, model.spectral.weights.detach()
