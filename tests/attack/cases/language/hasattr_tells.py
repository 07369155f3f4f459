# /// stoilo-case
# idea = "getattr with an own fallback"
# stopped_by = "language"
# goal = "inside"
# ///
def run(kwargs):
    return "REACHED" if hasattr(run, "__glo" + "bals__") else ""
