# /// stoilo-case
# idea = "code of the host"
# run = "probe"
# stopped_by = "kernel"
# error = "OSError"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes

for path in ("/lib/x86_64-linux-gnu/libutil.so.1", "/lib64/libutil.so.1"):
    try:
        ctypes.CDLL(path)
    except OSError as error:
        reason = error
    else:
        print("REACHED")
        break
else:
    raise reason
