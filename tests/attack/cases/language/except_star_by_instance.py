# /// stoilo-case
# idea = "except star"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# source = "CVE-2025-22153"
# ///
def run(kwargs):
    word = ""
    group = ExceptionGroup("x", [ValueError()])
    group.split = lambda condition: (ExceptionGroup("REACHED", [ValueError()]), None)
    try:
        raise group
    except* ValueError as found:
        word = found.message
    return word
