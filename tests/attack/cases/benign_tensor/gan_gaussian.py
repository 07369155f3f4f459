# /// stoilo-case
# idea = "adversarial training"
# level = "tensor"
# ///
"""One generator against one discriminator, on a mixture of Gaussians."""
import torch
import torch.nn as nn
import torch.optim as optim

real_label, fake_label = 1.0, 0.0


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1:
        nn.init.xavier_uniform_(m.weight, gain=nn.init.calculate_gain("relu"))
        nn.init.zeros_(m.bias)


def mixture(n):
    angles = torch.randint(0, 8, (n,)) * (3.14159265 / 4)
    return torch.stack([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(n, 2)


def run(kwargs):
    torch.manual_seed(999)
    netG = nn.Sequential(nn.Linear(4, 24), nn.ReLU(True), nn.Linear(24, 2))
    netD = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1), nn.Sigmoid())
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=0.01, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.01, betas=(0.5, 0.999))
    fixed_noise = torch.randn(4, 4)
    log = []
    for i in range(40):
        netD.zero_grad()
        real = mixture(32)
        label = torch.full((32,), real_label, dtype=torch.float)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        fake = netG(torch.randn(32, 4))
        label.fill_(fake_label)
        errD_fake = criterion(netD(fake.detach()).view(-1), label)
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        label.fill_(real_label)
        errG = criterion(netD(fake).view(-1), label)
        errG.backward()
        optimizerG.step()
        if i % 10 == 0:
            log.append((i, errD_real.item() + errD_fake.item(), errG.item()))
            print("[%d] Loss_D: %.4f Loss_G: %.4f" % log[-1])
    return log, netG(fixed_noise).detach()
