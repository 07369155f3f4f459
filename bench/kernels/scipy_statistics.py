import numpy as np
from scipy import stats


def run(n):
    rng = np.random.default_rng(11)
    total = 0.0
    for _ in range(n):
        a, b = rng.normal(0, 1, 60), rng.gamma(2.0, 1.5, 80)
        total += float(stats.ttest_ind(a, b).pvalue + stats.mannwhitneyu(a, b).pvalue)
        shape, where, scale = stats.gamma.fit(b, floc=0)
        total += float(stats.gamma(shape, where, scale).cdf(b).sum())
        total += float(stats.gaussian_kde(a)(np.linspace(-2, 2, 50)).sum())
        total += float(stats.linregress(a, b[:60]).slope)
    return total
