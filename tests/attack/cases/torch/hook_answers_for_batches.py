# /// stoilo-case
# idea = "hooks that answer for refused names"
# level = "tensor"
# stopped_by = "language"
# goal = "inside"
# ///
from torch.utils.data import DataLoader


class Data:
    def __len__(self):
        return 1

    def __getitem__(self, place):
        return ""

    def __getattr__(self, name):
        return lambda places: ["REACHED"]


def run(kwargs):
    return next(iter(DataLoader(Data())))[0]
