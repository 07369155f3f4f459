# /// stoilo-case
# idea = "format found otherwise"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# source = "CVE-2023-41039"
# ///
def run(kwargs):
    text = getattr("{0.__globals__}", "for" + "mat")(run)
    return "REACHED" if "__builtins__" in text else ""
