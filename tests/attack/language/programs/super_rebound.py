# expect: refused STO-G010
# level: pure
def run(kwargs):
    super = lambda: run
    return "ESCAPED" if super().__init__ else ""
