"""Run folders of attack and benign programs against the layers of the sandbox.

`case` reads a program with its header, `checks` says which runs a case needs and what each
must show, `runner` does them in warm jails, `report` renders what came of it. The form is
documented in docs/reference/cases.md; anybody's suite in that form runs with
``stoilo sandbox suite DIR``.
"""
