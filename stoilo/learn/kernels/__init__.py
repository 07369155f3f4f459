"""Task functions of learning: they travel as source, like a researcher's own.

Each takes one dict: ``parameters`` and ``buffers`` (name → array), ``data`` (``x`` and ``y``,
samples first), ``rows`` (indices or None), ``settings``, ``version``, and what its model adds;
each returns the flat dict that `stoilo.learn.driver.acceptance` checks. Sums, not means:
weighting is exact so. The gate checks them like any source: no privilege is theirs.
"""
