# /// stoilo-case
# idea = "exec"
# run = "probe"
# stopped_by = "kernel"
# syscall = "execve"
# goal = "inside"
# ///
import os
import sys

os.execv(sys.executable, [sys.executable, "-c", "print('REACHED')"])
