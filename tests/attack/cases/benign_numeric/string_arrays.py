# /// stoilo-case
# idea = "text arrays"
# level = "numeric"
# ///
"""FASTA-like text with string arrays, numpy.char and numpy.strings."""
import numpy as np
from collections import Counter

FASTA = """>seq1 human
ACGTACGTTAGC
>seq2 mouse
ACGAACGTTAGG
>seq3 fly
TTGTACGATAGC
"""


def parse(text):
    names, seqs = [], []
    for line in text.splitlines():
        if line.startswith(">"):
            names.append(line[1:].split()[0])
            seqs.append("")
        else:
            seqs[-1] += line.strip()
    return np.array(names), np.array(seqs)


def run(kwargs):
    names, seqs = parse(FASTA)
    matrix = np.array([list(s) for s in seqs])
    as_bytes = np.frombuffer("".join(seqs).encode(), dtype="S1").reshape(matrix.shape)
    codes = np.frombuffer("".join(seqs).encode("ascii"), dtype=np.uint8).reshape(matrix.shape)
    hamming = (matrix[:, None] != matrix[None]).sum(-1)
    consensus = "".join(Counter(col).most_common(1)[0][0] for col in matrix.T.tolist())
    upper = np.char.upper(names)
    joined = np.char.add(np.char.add(names, "-"), np.char.mod("%03d", np.arange(3)))
    split = [list(p) for p in np.char.partition(joined, "-")]
    gc = (np.char.count(seqs, "G") + np.strings.count(seqs, "C")) / np.strings.str_len(seqs)
    return {
        "hamming": hamming,
        "consensus": consensus,
        "upper": upper,
        "joined": joined,
        "split": [[str(x) for x in p] for p in split],
        "gc": gc,
        "same": bool((as_bytes == b"A").sum() == (codes == ord("A")).sum()),
        "find": np.strings.find(seqs, "TAG"),
        "replace": np.char.replace(seqs, "T", "U"),
        "starts": np.char.startswith(seqs, "AC"),
        "fixed": np.array(["a", "bbb", "cc"], dtype="U2"),
        "sorted": np.sort(names)[::-1],
        "isin": np.isin(names, ["seq1", "seq9"]),
        "strip": np.char.strip(np.array(["  x ", "y"])),
        "zfill": np.strings.zfill(np.array(["7", "42"]), 4),
        "dtype": str(names.dtype),
        "isdigit": np.char.isnumeric(np.array(["12", "1a"])),
    }
