# /// stoilo-case
# idea = "ends the process that asks"
# run = "validator"
# stopped_by = "validation"
# verdict = "raised"
# goal = "inside"
# ///
def compare(one, other):
    raise SystemExit("accepted")
