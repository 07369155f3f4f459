# /// stoilo-case
# idea = "raise limit"
# run = "probe"
# stopped_by = "kernel"
# goal = "inside"
# preload = ["resource"]
# ///
import resource

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("REACHED")
