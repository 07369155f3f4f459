# /// stoilo-case
# idea = "variational autoencoder"
# level = "tensor"
# ///
"""A variational autoencoder of bumps on a line."""
import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, size=32, latent=2):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(size, 24)
        self.fc21 = nn.Linear(24, latent)
        self.fc22 = nn.Linear(24, latent)
        self.fc3 = nn.Linear(latent, 24)
        self.fc4 = nn.Linear(24, size)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 32))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 32), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def run(kwargs):
    torch.manual_seed(2)
    grid = torch.linspace(-1, 1, 32)
    centre = torch.rand(64, 1) * 1.6 - 0.8
    data = torch.exp(-((grid - centre) ** 2) / 0.02)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for epoch in range(30):
        model.train()
        train_loss = 0
        for i in range(0, 64, 16):
            optimizer.zero_grad()
            recon, mu, logvar = model(data[i:i + 16])
            loss = loss_function(recon, data[i:i + 16], mu, logvar)
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
        losses.append(train_loss / 64)
    with torch.no_grad():
        sample = model.decode(torch.randn(2, 2))
    return losses[::5], sample
