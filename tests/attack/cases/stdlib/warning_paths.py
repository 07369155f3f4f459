# /// stoilo-case
# idea = "warnings machinery"
# stopped_by = "language"
# goal = "inside"
# ///
import warnings


def run(kwargs):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        warnings.warn("x", stacklevel=2)
        warnings.warn("x", stacklevel=3)
        warnings.warn("x", stacklevel=4)
    # The sandbox's own files; the control's frames have no file of their own.
    names = [item.filename for item in log]
    paths = [name for name in names if "/" in name or name in ("<string>", "sys")]
    return "REACHED" if paths else ""
