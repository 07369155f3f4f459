# /// stoilo-case
# idea = "import of a forbidden module"
# stopped_by = "gate"
# code = "STO-P040"
# ///
class Tools:
    from pathlib import Path


def run(kwargs):
    return Tools.Path(kwargs["mark"]).touch()
