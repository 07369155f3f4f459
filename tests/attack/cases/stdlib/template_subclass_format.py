# /// stoilo-case
# idea = "format strings by library helpers"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from string import Template

SECRET = "REACHED"


class Form(Template):
    def substitute(self, *values):
        return self.template.format(*values)


def run(kwargs):
    return Form("{0.__globals__[SECRET]}").substitute(run)
