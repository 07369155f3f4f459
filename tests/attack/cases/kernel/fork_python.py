# /// stoilo-case
# idea = "new process"
# run = "probe"
# stopped_by = "kernel"
# syscall = "clone"
# goal = "inside"
# ///
import os

if os.fork() == 0:
    os._exit(0)
os.wait()
print("REACHED")
