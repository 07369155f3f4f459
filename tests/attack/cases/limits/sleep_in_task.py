# /// stoilo-case
# idea = "sleep"
# stopped_by = "limits"
# limit = "wall_s"
# goal = "inside"
# limits = { wall_s = 1 }
# ///
import time


def run(kwargs):
    time.sleep(2)
    return "REACHED"
