# /// stoilo-case
# idea = "open a file"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# ///
open("/proc/self/mem", "rb").close()
print("REACHED")
