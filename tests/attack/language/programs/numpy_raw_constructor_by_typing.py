# expect: user_error STO-G200
# level: numeric
from numpy.typing import NDArray


def run(kwargs):
    return "ESCAPED" if NDArray[int]((4,)).size else ""
