"""`stoilo sandbox selftest`: tries to break every mechanism of the jail on this machine.

`trials` applies one mechanism alone and attempts what it must stop, first without it (the
control: an attempt that fails anyway proves nothing); `observation` looks at a real run from
outside; `verdicts` turns both into one row for each mechanism.
"""
