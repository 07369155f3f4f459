# /// stoilo-case
# idea = "processor time that wait4 does not show"
# run = "probe"
# level = "pure"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# preload = ["ctypes"]
# control = "none"
# limits = {cpu_s = 1, wall_s = 30}
# ///
# Awake only while the clock ticks (at 250 Hz), and deaf to the limit's signal: killed in the
# end by the kernel, it once looked as if this machine had failed, and was tried again.
import ctypes
import time

TICK_NS, SIGXCPU, SIG_IGN = 4_000_000, 24, 1
ctypes.CDLL(None).signal(SIGXCPU, ctypes.c_void_p(SIG_IGN))
while True:
    now = time.monotonic_ns()
    tick = (now // TICK_NS + 1) * TICK_NS
    time.sleep(max(0, tick - now - 300_000) / 1e9)
    while time.monotonic_ns() < tick + 200_000:
        pass
