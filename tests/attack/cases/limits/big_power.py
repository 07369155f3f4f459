# /// stoilo-case
# idea = "burn time in one C call"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
PLAIN = __name__ == "attack"  # outside, a little is enough to show what it does


def run(kwargs):
    number = 3 ** (1 << (12 if PLAIN else 24))
    return "REACHED" if number * number else ""
