# expect: refused STO-G010
# level: pure
run = lambda kwargs, _stoilo_write=None: "ESCAPED"
