# /// stoilo-case
# idea = "import of a forbidden module"
# stopped_by = "gate"
# code = "STO-P040"
# ///
def run(kwargs):
    import subprocess as tool

    return tool.run(["touch", kwargs["mark"]], check=True).returncode
