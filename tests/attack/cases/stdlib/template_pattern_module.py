# /// stoilo-case
# idea = "string.Formatter"
# stopped_by = "language"
# code = "STO-G200"
# source = "CVE-2024-47532"
# ///
import string


def run(kwargs):
    system = [string][0]._re.enum.sys.modules["posix"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
