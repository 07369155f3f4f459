# /// stoilo-case
# idea = "random numbers"
# level = "numeric"
# ///
"""Every bit generator, spawning, jumping, states and distributions."""
import numpy as np
from numpy.random import Generator, MT19937, PCG64, PCG64DXSM, Philox, SFC64, SeedSequence, default_rng


def run(kwargs):
    out = {}
    for cls in (MT19937, PCG64, PCG64DXSM, Philox, SFC64):
        rng = Generator(cls(SeedSequence(1234)))
        out[cls.__name__] = rng.integers(0, 1000, 4).tolist() + [rng.random(), rng.normal()]
    root = SeedSequence(42)
    children = [default_rng(s) for s in root.spawn(3)]
    out["spawn"] = [g.standard_exponential() for g in children]
    out["spawn2"] = [g.random() for g in default_rng(5).spawn(2)]
    out["jump"] = Generator(PCG64(3).jumped(2)).random(2)
    out["philox"] = Generator(Philox(key=7, counter=3)).random(2)
    rng = default_rng([1, 2, 3])
    out["choice"] = [rng.choice(["a", "b", "c"], 3).tolist(), rng.choice(10, 4, replace=False).tolist(), rng.choice(5, p=[0.1, 0.2, 0.3, 0.2, 0.2])]
    out["perm"] = [rng.permutation(6), rng.permuted(np.arange(6).reshape(2, 3), axis=1)]
    out["multi"] = rng.multinomial(20, [0.2, 0.3, 0.5], size=2)
    out["mvh"] = rng.multivariate_hypergeometric([5, 4, 3], 6)
    out["dirichlet"] = rng.dirichlet([1, 2, 3])
    out["cont"] = [f(2) for f in (rng.gamma, rng.chisquare, rng.standard_t, rng.weibull, rng.pareto, rng.rayleigh, rng.power)]
    out["disc"] = [int(rng.poisson(4)), int(rng.binomial(10, 0.3)), int(rng.geometric(0.2)), int(rng.zipf(3)), int(rng.logseries(0.5)), int(rng.negative_binomial(3, 0.5)), int(rng.hypergeometric(5, 5, 4))]
    out["more"] = [rng.beta(1, 2), rng.f(2, 3), rng.gumbel(), rng.laplace(), rng.logistic(), rng.lognormal(), rng.vonmises(0, 1), rng.wald(1, 1), rng.triangular(0, 1, 2), rng.noncentral_chisquare(2, 1), rng.standard_cauchy()]
    out["f32"] = rng.random(3, dtype=np.float32)
    buf = np.zeros(3)
    rng.standard_normal(out=buf)
    out["buf"] = buf
    out["bytes"] = rng.bytes(5)
    np.random.seed(0)
    out["legacy"] = [np.random.rand(2), np.random.randn(2), np.random.randint(0, 9, 3), np.random.choice(5, 2, False), np.random.permutation(4), np.random.uniform(-1, 1), np.random.exponential(2.0)]
    rs = np.random.RandomState(7)
    saved = rs.get_state()
    first = rs.random_sample(3)
    other = np.random.RandomState(8)
    out["state"] = [saved[0], saved[2], first, other.tomaxint(2) > 0]
    a = np.arange(5)
    rs.shuffle(a)
    out["shuffled"] = a
    return out
