# expect: refused STO-G011
# level: pure
class C:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.frame = trace.tb_frame
        return True


def run(kwargs):
    c = C()
    with c:
        1 / 0
    return "ESCAPED" if c.frame else ""
