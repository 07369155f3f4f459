# /// stoilo-case
# idea = "decimal fractions"
# run = "task"
# level = "pure"
# ///
import decimal
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction


def run(kwargs):
    with localcontext() as ctx:
        ctx.prec = 30
        third = Decimal(1) / 3
        root = Decimal(2).sqrt()
    getcontext().prec = 8
    short = Decimal(1) / 7
    getcontext().prec = 28
    rounded = Decimal("2.675").quantize(Decimal("0.01"), rounding=decimal.ROUND_HALF_UP)
    bernoulli = [Fraction(0)] * 6
    for m in range(6):
        bernoulli[m] = Fraction(1, m + 1)
        for j in range(m, 0, -1):
            bernoulli[j - 1] = j * (bernoulli[j - 1] - bernoulli[j])
    return [
        str(third),
        str(root),
        str(short),
        str(rounded),
        [str(b) for b in bernoulli],
        float(Fraction(22, 7)),
    ]
