# /// stoilo-case
# idea = "format attribute walk"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# source = "CVE-2023-41039"
# ///
def run(kwargs):
    [text] = map(str.format, ["{0.__globals__}"], [run])
    return "REACHED" if "__builtins__" in text else ""
