# /// stoilo-case
# idea = "burn processor time"
# run = "probe"
# level = "pure"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
import time

end = time.process_time() + 1.8
while time.process_time() < end:
    pass
print("REACHED")
