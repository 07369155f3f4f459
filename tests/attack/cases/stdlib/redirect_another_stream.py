# /// stoilo-case
# idea = "library context managers"
# stopped_by = "language"
# code = "STO-G105"
# ///
from contextlib import redirect_stdout


class Redirect(redirect_stdout):
    _stream = "modules"

    def taken(self):
        return self._old_targets[-1]


def run(kwargs):
    redirect = Redirect(None)
    with redirect:
        system = redirect.taken()["os"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
