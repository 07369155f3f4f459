# /// stoilo-case
# idea = "files without open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "setxattr"
# goal = "inside"
# control = "host"
# ///
import os

os.setxattr(CANARY, "user.stoilo", b"x")
print("REACHED")
