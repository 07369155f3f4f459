def run(kwargs):
    compose = lambda *fs: lambda x: fs[0](compose(*fs[1:])(x)) if fs else x
    return [compose(str, abs)(-3), sorted("bca", key=lambda c: -ord(c)), (lambda: (yield))().send(None)]


# abuse: STO-G010
def run(kwargs):
    return (lambda __builtins__: "REACHED")({})
