# /// stoilo-case
# idea = "warnings machinery"
# stopped_by = "language"
# code = "STO-G105"
# ///
import warnings


class W(warnings.catch_warnings):
    def leak(self):
        return self._module.sys.modules


def run(kwargs):
    system = W().leak()["posix"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
