# /// stoilo-case
# idea = "an ending by name"
# level = "pure"
# wider = true
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# control = "none"
# ///
def run(kwargs):
    raise BaseExceptionGroup("all of them", [MemoryError(), KeyboardInterrupt()])
