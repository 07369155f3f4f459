# /// stoilo-case
# idea = "files without open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "link"
# control = "host"
# ///
import os

os.link(CANARY, MARK)
