# /// stoilo-case
# idea = "burn processor time"
# run = "probe"
# level = "pure"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# preload = ["signal"]
# ///
import signal
import time

for number in (signal.SIGXCPU, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
end = time.process_time() + 2.2
while time.process_time() < end:
    pass
print("REACHED")
