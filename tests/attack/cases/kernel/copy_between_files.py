# /// stoilo-case
# idea = "files without open"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# ///
import os

source = os.open(CANARY, os.O_RDONLY)
target = os.open(MARK, os.O_WRONLY | os.O_CREAT)
os.copy_file_range(source, target, 100)
