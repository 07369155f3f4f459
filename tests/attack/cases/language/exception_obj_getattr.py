# /// stoilo-case
# idea = "exception gives the object"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# source = "CVE-2024-47532"
# ///
def run(kwargs):
    try:
        run.nothing
    except AttributeError as error:
        return "REACHED" if getattr(error, "o" + "bj") is run else ""
