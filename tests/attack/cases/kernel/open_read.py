# /// stoilo-case
# idea = "open a file"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# ///
open("/etc/passwd").read()
print("REACHED")
