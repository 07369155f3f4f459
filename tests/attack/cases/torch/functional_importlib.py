# /// stoilo-case
# idea = "modules inside torch modules"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G200"
# ///
import torch.nn.functional as F


def run(kwargs):
    importlib = getattr(F, "importlib")
    return importlib.import_module("builtins").open(kwargs["canary"]).read()
