# /// stoilo-case
# idea = "burn time in one C call"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
PLAIN = __name__ == "attack"  # outside, a little is enough to show what it does


def run(kwargs):
    return "REACHED" if sum(range(10**6 if PLAIN else 10**11)) else ""
