# /// stoilo-case
# idea = "format found by a pattern"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    match "{0.__globals__}":
        case str(format=walk):
            return "REACHED" if "__builtins__" in walk(run) else ""
