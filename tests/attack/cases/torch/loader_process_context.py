# /// stoilo-case
# idea = "modules by a loader's process context"
# level = "tensor"
# stopped_by = "language"
# code = "STO-G200"
# ///
from torch.utils.data import DataLoader


class Loader(DataLoader):
    def open_road(self, mark):
        self.num_workers = 2
        self.multiprocessing_context = "fork"
        self.multiprocessing_context.reducer.os.mkdir(mark)


def run(kwargs):
    Loader([1, 2, 3]).open_road(kwargs["mark"])
