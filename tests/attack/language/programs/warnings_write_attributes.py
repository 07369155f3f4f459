# expect: user_error STO-G200
# level: pure
import warnings


def run(kwargs):
    class Target:
        filters = []
        showwarning = None

        def _filters_mutated(self):
            self.touched = True

        _showwarnmsg_impl = None

    target = Target()
    with warnings.catch_warnings(module=target):
        return "ESCAPED" if target.touched else ""
