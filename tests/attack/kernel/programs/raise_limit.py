# expect: user_error language *
# preload: resource
import resource

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("REACHED")
