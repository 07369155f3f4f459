# /// stoilo-case
# idea = "exception gives the object"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# source = "CVE-2024-47532"
# ///
def run(kwargs):
    try:
        run.nothing
    except AttributeError as error:
        match error:
            case AttributeError(obj=found):
                return "REACHED" if found is run else ""
