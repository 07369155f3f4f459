"""Fuzz the launcher's parsers: `python tests/fuzz/fuzz_launcher.py [SECONDS] [SEED]`.

Builds `fuzz_parsers.c` with sanitizers and feeds it mutations of an honest archive, of its
manifest and of BOINC's soft link. Where clang is, its coverage leads (libFuzzer). Prints
seed and counts; exits with the program's status when a promise or an access breaks.
"""

import io
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stoilo.core.frozen_tree import platform_name
from stoilo.flavors.launcher_build import launcher_sources
from stoilo.flavors.packing import describe_tree, write_archive

PROGRAM = (
    Path(__file__).parents[1] / "executor" / "launcher" / "programs" / "fuzz_parsers.c"
)
SOURCES = ("archive.c", "header.c", "manifest.c", "sha256.c", "failure.c")
ROUNDS = 50_000  # of one seed


def make_archive(folder: Path) -> bytes:
    """Return a small archive with long, short, empty and almost clashing names."""
    tree = folder / "tree"
    (tree / "a" / ("b" * 99)).mkdir(parents=True)
    (tree / "a" / ("b" * 99) / "c").write_bytes(b"x" * 700)
    for name in ("a/d", "K1", "k3"):
        (tree / name).write_bytes(b"")
    stream = io.BytesIO()
    write_archive(tree, describe_tree(tree, "verifier", platform_name()), stream)
    return stream.getvalue()


def build(folder: Path, compiler: str, *options: str) -> Path:
    """Compile the fuzz program with sanitizers."""
    sources = [str(launcher_sources() / source) for source in SOURCES]
    words = ["-std=c11", "-O1", "-g", "-fno-sanitize-recover=all", *options]
    words += [f"-I{launcher_sources()}", f'-DPLATFORM="{platform_name()}"']
    output = folder / "fuzz"
    subprocess.run([compiler, *words, "-o", output, PROGRAM, *sources], check=True)
    return output


def run_mutations(folder: Path, seconds: float, seed: int) -> int:
    """Run our own mutations, one seed after the other."""
    program = build(folder, "gcc", "-fsanitize=address,undefined")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        command = [program, str(seed), str(ROUNDS), folder / "archive.tar"]
        print(f"seed {seed}: ", end="", flush=True)
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            return status
        seed += 1
    return 0


def run_guided(folder: Path, seconds: float, seed: int) -> int:
    """Let clang's libFuzzer look for new ways through the parsers."""
    program = build(
        folder, "clang", "-fsanitize=fuzzer,address,undefined", "-DLIBFUZZER"
    )
    corpus = folder / "corpus"
    corpus.mkdir()
    archive = (folder / "archive.tar").read_bytes()
    size = int(archive[124:135], 8)
    link = b"<soft_link>../../projects/p/stoilo-verifier.tar</soft_link>\n"
    for number, one in enumerate((archive[512 : 512 + size], link, archive)):
        (corpus / str(number)).write_bytes(bytes([number]) + one)
    options = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=65536"]
    return subprocess.run([program, *options, corpus], check=False).returncode


def main(seconds: float, seed: int) -> int:
    """Build, run and return the exit status."""
    if shutil.which("gcc") is None:
        print("the launcher's fuzz target needs gcc: apt-get install gcc libc6-dev")
        return 1
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        (folder / "archive.tar").write_bytes(make_archive(folder))
        if shutil.which("clang") is None:
            return run_mutations(folder, seconds, seed)
        try:
            status = run_guided(folder, seconds / 2, seed)
        except subprocess.CalledProcessError:  # clang without its sanitizers' libraries
            status = 0
        return status or run_mutations(folder, seconds / 2, seed)


if __name__ == "__main__":
    SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    sys.exit(main(SECONDS, SEED))
