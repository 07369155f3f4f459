# /// stoilo-case
# idea = "burn time while loading"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
def slow(function):
    while __name__ != "attack":
        pass
    return function


@slow
def run(kwargs):
    return "REACHED"
