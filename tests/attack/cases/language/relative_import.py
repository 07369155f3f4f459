# /// stoilo-case
# idea = "odd import forms"
# stopped_by = "gate"
# code = "STO-P042"
# goal = "inside"
# ///
def run(kwargs):
    try:
        from . import neighbour
    except ImportError:
        return "REACHED"
