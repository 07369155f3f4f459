# /// stoilo-case
# idea = "dynamic attributes"
# run = "task"
# level = "pure"
# ///
class Config:
    debug = False

    def __init__(self, **options):
        for name, value in options.items():
            setattr(self, name, value)

    def get(self, name, default=None):
        return getattr(self, name, default)

    def drop(self, name):
        delattr(self, name)
        return self


def operate(value, method, *args):
    return getattr(value, method)(*args)


def run(kwargs):
    config = Config(alpha=1, _beta=2)
    config.gamma = 3
    del config.alpha
    return [
        config.get("alpha", "gone"),
        config.get("_beta"),
        hasattr(config, "gamma"),
        hasattr(config, "delta"),
        hasattr([], "__iter__"),
        hasattr(3, "__len__"),
        operate("abc", "upper"),
        operate([3, 1, 2], "index", 1),
        config.drop("gamma").get("gamma"),
        getattr(config, "__class__").__name__,
        config.debug,
    ]
