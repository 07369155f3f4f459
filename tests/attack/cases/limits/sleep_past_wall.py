# /// stoilo-case
# idea = "sleep past wall"
# run = "probe"
# level = "pure"
# stopped_by = "limits"
# limit = "wall_s"
# goal = "inside"
# limits = { wall_s = 1 }
# ///
import time

time.sleep(2)
print("REACHED")
