# /// stoilo-case
# idea = "getattr with an own fallback"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    found = getattr(int, "__ba" + "se__", None)
    return "REACHED" if found is object else ""
