# /// stoilo-case
# idea = "generator frames"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    def walk():
        match generator:
            case object(gi_frame=object(f_builtins=names)):
                yield names["open"](kwargs["canary"]).read()

    generator = walk()
    return next(generator)
