# /// stoilo-case
# idea = "probability distributions"
# level = "tensor"
# ///
"""Log densities, samples and divergences; black-box variational inference."""
import torch
from torch import distributions as dist
from torch.distributions import Bernoulli, Beta, Dirichlet, Gamma, Normal, kl_divergence


def elbo(mu, log_sigma, data, samples=8):
    q = Normal(mu, log_sigma.exp())
    z = q.rsample((samples,))
    likelihood = Normal(z.unsqueeze(-1), 0.5).log_prob(data).sum(-1)
    return likelihood.mean() - kl_divergence(q, Normal(0.0, 2.0))


def run(kwargs):
    torch.manual_seed(80)
    data = 1.3 + 0.5 * torch.randn(30)
    mu, log_sigma = torch.zeros((), requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([mu, log_sigma], lr=0.1)
    bounds = []
    for _ in range(40):
        loss = -elbo(mu, log_sigma, data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bounds.append(loss.item())
    several = {
        "beta": Beta(torch.tensor(2.0), torch.tensor(3.0)), "gamma": Gamma(2.0, 1.0),
        "dirichlet": Dirichlet(torch.ones(3)), "bernoulli": Bernoulli(probs=torch.tensor([0.2, 0.8])),
        "poisson": dist.Poisson(3.0), "student": dist.StudentT(4.0), "uniform": dist.Uniform(0.0, 2.0),
        "laplace": dist.Laplace(0.0, 1.0), "exponential": dist.Exponential(2.0),
        "multinomial": dist.Multinomial(5, torch.tensor([0.2, 0.3, 0.5])),
        "independent": dist.Independent(Normal(torch.zeros(3), torch.ones(3)), 1),
        "one_hot": dist.OneHotCategorical(torch.tensor([0.1, 0.9])), "binomial": dist.Binomial(6, torch.tensor(0.4)),
    }
    report = {}
    for name, one in several.items():
        sample = one.sample()
        report[name] = (sample, one.log_prob(sample), one.mean, one.variance)
    mixture = dist.MixtureSameFamily(
        dist.Categorical(torch.tensor([0.3, 0.7])), Normal(torch.tensor([-1.0, 1.0]), torch.tensor([0.5, 0.5]))
    )
    flow = dist.TransformedDistribution(Normal(0.0, 1.0), [dist.AffineTransform(1.0, 2.0), dist.ExpTransform()])
    report["mixture"] = mixture.log_prob(torch.tensor([0.0, 1.0]))
    report["flow"] = flow.log_prob(torch.tensor([0.5, 3.0]))
    report["entropy"] = Normal(0.0, 3.0).entropy()
    return bounds[::8], mu.item(), log_sigma.item(), report
