"""Distributions, tests of hypotheses, regressions, resampling."""

import numpy as np
from scipy import optimize, stats


def _samples():
    rng = np.random.default_rng(11)
    return rng.normal(0, 1, 60), rng.normal(0.5, 1.2, 70), rng.gamma(2.0, 1.5, 80)


def _optimise(fun, bounds, **options):
    return optimize.differential_evolution(fun, bounds, rng=1, **options)


def tests_of_two_samples(args):
    a, b, c = _samples()
    return [
        list(map(float, (found.statistic, found.pvalue)))
        for found in (
            stats.ttest_ind(a, b, equal_var=False),
            stats.mannwhitneyu(a, b),
            stats.ks_2samp(a, b),
            stats.levene(a, b),
            stats.f_oneway(a, b, c),
            stats.kruskal(a, b, c),
            stats.wilcoxon(a, b[:60]),
            stats.shapiro(c),
            stats.kstest(a, "norm"),
            stats.pearsonr(a, b[:60]),
            stats.spearmanr(a, b[:60]),
        )
    ]


def distributions_and_fits(args):
    _, _, c = _samples()
    shape, where, scale = stats.gamma.fit(c, floc=0)
    frozen = stats.gamma(shape, loc=where, scale=scale)
    x = np.linspace(0, 8, 17)
    bounds = {"loc": (0, 10), "scale": (0.1, 10)}
    found = stats.fit(stats.norm, c, bounds, optimizer=_optimise)
    return [
        [shape, scale],
        frozen.pdf(x).tolist(),
        frozen.ppf([0.1, 0.5, 0.9]).tolist(),
        list(map(float, frozen.stats("mvsk"))),
        list(map(float, found.params)),
        stats.binom(10, 0.3).pmf(range(11)).tolist(),
    ]


def random_variates_are_seeded(args):
    many = stats.multivariate_normal([0, 1], [[2, 0.5], [0.5, 1]])
    return [
        stats.norm.rvs(2, 3, size=5, random_state=1).tolist(),
        stats.beta(2, 3).rvs(5, random_state=np.random.default_rng(2)).tolist(),
        stats.poisson.rvs(4, size=5).tolist(),
        many.rvs(3, random_state=3).tolist(),
        many.logpdf([[0, 0], [1, 1]]).tolist(),
        stats.dirichlet.rvs([1, 2, 3], size=2, random_state=4).tolist(),
    ]


def regressions(args):
    x = np.arange(30.0)
    y = 2 * x + np.random.default_rng(7).normal(0, 3, 30)
    line = stats.linregress(x, y)
    robust = stats.theilslopes(y, x)
    numbers = (line.slope, line.intercept, line.rvalue, line.stderr, *robust)
    return list(map(float, numbers))


def resampling(args):
    a, b, _ = _samples()

    def difference(x, y, axis=-1):
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    swap = stats.permutation_test((a, b), difference, n_resamples=200, rng=1)
    boot = stats.bootstrap((a,), np.median, n_resamples=200, rng=2, method="percentile")
    low, high = boot.confidence_interval
    return float(swap.pvalue), float(low), float(high)


def tables_and_rates(args):
    table = np.array([[10, 20, 30], [6, 9, 17]])
    found = stats.chi2_contingency(table)
    exact = stats.fisher_exact([[8, 2], [1, 5]])
    odds = stats.contingency.odds_ratio([[8, 2], [1, 5]])
    sign = stats.binomtest(14, 20).proportion_ci()
    rates = stats.false_discovery_control([0.01, 0.02, 0.03, 0.4])
    return [
        *(float(found.statistic), found.expected_freq.tolist(), float(exact.pvalue)),
        *(float(odds.statistic), list(map(float, sign)), rates.tolist()),
    ]


def density_and_order(args):
    a, b, c = _samples()
    density = stats.gaussian_kde(np.r_[a, b], bw_method="silverman")
    counts = stats.binned_statistic(c, c**2, statistic=lambda v: v.max(initial=0), bins=5)
    own = stats.rv_histogram(np.histogram(c, bins=10), density=False)
    die = stats.rv_discrete(values=([1, 2, 3], [0.2, 0.5, 0.3]))
    return [
        density(np.linspace(-2, 2, 9)).tolist(),
        counts.statistic.tolist(),
        stats.rankdata([3, 1, 3, 2]).tolist(),
        own.cdf([1, 2, 3]).tolist(),
        [float(die.mean()), die.rvs(size=5, random_state=1).tolist()],
        stats.boxcox(c)[1],
    ]


def low_discrepancy_points(args):
    sobol = stats.qmc.Sobol(d=2, rng=np.random.default_rng(1)).random(8)
    halton = stats.qmc.Halton(d=3, scramble=False).random(5, workers=2)
    return sobol.tolist(), halton.tolist(), float(stats.qmc.discrepancy(sobol))


def distributions_by_quadrature(args):
    found = (
        stats.genhyperbolic(1, 2, 1),
        stats.geninvgauss(2.3, 1.5),
        stats.studentized_range(3, 10),
    )
    values = [float(one.cdf(0.4)) for one in found]
    return values, stats.tukey_hsd([1.0, 2, 3], [2.0, 3, 5]).pvalue.tolist()


def draws_from_uneven_urns(args):
    urns = (stats.nchypergeom_fisher, stats.nchypergeom_wallenius)
    return [
        (urn.pmf(range(5), 20, 7, 12, 2.5).tolist(), urn.stats(20, 7, 12, 0.5))
        for urn in urns
    ] + [urns[0].rvs(20, 7, 12, 1.5, size=4, random_state=1).tolist()]
