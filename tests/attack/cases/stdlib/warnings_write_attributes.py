# /// stoilo-case
# idea = "warnings machinery"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
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
        return "REACHED" if target.touched else ""
