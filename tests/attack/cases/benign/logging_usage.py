# /// stoilo-case
# idea = "logging"
# ///
"""A solver with a module logger, as half of all scripts have."""
import logging
import math
import sys

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())


def newton(f, df, x, tol=1e-12, maxiter=50):
    for i in range(maxiter):
        fx = f(x)
        logger.debug("iteration %d: x=%.6f f=%.2e", i, x, fx)
        if abs(fx) < tol:
            logger.info("converged after %d iterations", i)
            return x
        x -= fx / df(x)
    logger.warning("no convergence")
    return math.nan


def run(kwargs):
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(levelname)s %(message)s")
    if len(sys.argv) > 5:
        logger.setLevel("DEBUG")
    root = newton(lambda x: x**3 - 2 * x - 5, lambda x: 3 * x * x - 2, 2.0)
    return [root, logger.isEnabledFor(logging.DEBUG), logging.getLevelName(logging.WARNING)]
