# /// stoilo-case
# idea = "burn time in one C call"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
from collections import deque


PLAIN = __name__ == "attack"  # outside, a little is enough to show what it does


def run(kwargs):
    deque(range(10**6 if PLAIN else 10**11), maxlen=0)
    return "REACHED"
