# /// stoilo-case
# idea = "hostile exception to the reporter"
# stopped_by = "language"
# goal = "inside"
# ///
def run(kwargs):
    try:
        return "REACHED" if getattr(run, "__globals__") else ""
    except BaseException:
        return "swallowed"
