# /// stoilo-case
# idea = "burn time in one C call"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
import re


PLAIN = __name__ == "attack"  # outside, a little is enough to show what it does


def run(kwargs):
    re.match(r"(a|a)*\Z", "a" * (12 if PLAIN else 60) + "b")
    return "REACHED"
