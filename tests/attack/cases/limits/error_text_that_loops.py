# /// stoilo-case
# idea = "burn time against the reporter"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
class Loud(Exception):
    def __str__(self):
        while __name__ != "attack":
            pass
        return "REACHED"


def run(kwargs):
    raise Loud
