# /// stoilo-case
# idea = "ends the process that asks"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
def init(value):
    raise SystemExit(0)
