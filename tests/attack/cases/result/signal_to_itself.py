# /// stoilo-case
# idea = "an ending of its own choice"
# run = "probe"
# stopped_by = "kernel"
# syscall = "kill"
# goal = "inside"
# preload = ["signal"]
# control = "plain"
# ///
# Killed from outside, it would seem: nobody knows anything about the task then.
import os
import signal

signal.signal(signal.SIGUSR1, lambda *_: print("REACHED"))
os.kill(os.getpid(), signal.SIGUSR1)
