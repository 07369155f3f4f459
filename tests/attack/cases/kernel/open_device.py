# /// stoilo-case
# idea = "open a file"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# ///
open("/dev/zero", "rb").read(1)
print("REACHED")
