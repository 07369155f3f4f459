# /// stoilo-case
# idea = "format found by a pattern"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    match ["{f.__globals__}"]:
        case [str(format_map=walk)]:
            return "REACHED" if "__builtins__" in walk({"f": run}) else ""
