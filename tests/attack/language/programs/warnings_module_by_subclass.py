# expect: user_error STO-G200
# level: pure
import warnings


class W(warnings.catch_warnings):
    def leak(self):
        return self._module.sys.modules


def run(kwargs):
    return "ESCAPED" if W().leak()["os"].getpid() else ""
