# /// stoilo-case
# idea = "files without open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "mknod"
# preload = ["stat"]
# ///
import os
import stat

os.mknod(MARK, 0o600 | stat.S_IFIFO)
