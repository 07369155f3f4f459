# /// stoilo-case
# idea = "names of files"
# ///
from pathlib import PurePath, PurePosixPath


def run(kwargs):
    p = PurePath("/a/b") / "c.tar.gz"
    out5 = [str(p), repr(p), p.name, p.stem, p.suffix, p.suffixes, p.parent == PurePosixPath("/a/b"), [str(x) for x in p.parents], p.with_suffix(".x").name, str(p.relative_to("/a")), p.parts, isinstance(p, PurePath), p.match("*.gz"), sorted([PurePath("b"), PurePath("a")])[0].name, {p: 1}[PurePath("/a/b/c.tar.gz")], f"{p}", str("x" / PurePath("y")), p.is_absolute(), str(p.joinpath("d", "e")), p.as_posix(), p.root, p.anchor]
    return out5
