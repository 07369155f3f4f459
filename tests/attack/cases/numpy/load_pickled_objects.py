# /// stoilo-case
# idea = "arrays in files in memory"
# level = "numeric"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import io

import numpy as np


def run(kwargs):
    file = io.BytesIO()
    head = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    file.write(b"\x93NUMPY\x01\x00" + bytes([len(head), 0]) + head)
    file.write(b"cbuiltins\nstr\n(VREACHED\ntR.")
    file.seek(0)
    return str(np.load(file, allow_pickle=True))
