# /// stoilo-case
# idea = "trusted names of a helper"
# wider = true
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import warnings

names = []


class W(warnings.catch_warnings):
    def _keep(self, message, category, filename, *more):
        names.append(filename)


def run(kwargs):
    with W(record=True) as log:
        warnings.simplefilter("always")
        for level in (2, 3, 4):
            warnings.warn("x", stacklevel=level)
    names.extend(item.filename for item in log)
    paths = [name for name in names if "/" in name or name in ("<string>", "sys")]
    return "REACHED" if paths else ""
