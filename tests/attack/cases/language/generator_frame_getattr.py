# /// stoilo-case
# idea = "generator frames"
# stopped_by = "language"
# code = "STO-G101"
# source = "CVE-2023-37271"
# ///
def run(kwargs):
    def walk():
        frame = getattr(getattr(generator, "gi_" + "frame"), "f_" + "back")
        yield getattr(frame, "f_" + "builtins")["open"](kwargs["canary"]).read()

    generator = walk()
    return next(generator)
