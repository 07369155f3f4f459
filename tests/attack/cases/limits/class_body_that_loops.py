# /// stoilo-case
# idea = "burn time while loading"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
class Slow:
    while __name__ != "attack":
        pass


def run(kwargs):
    return "REACHED"
