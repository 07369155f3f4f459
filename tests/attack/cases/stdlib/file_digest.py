# /// stoilo-case
# idea = "library functions that read files"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import hashlib
import io


def run(kwargs):
    with io.FileIO(kwargs["canary"]) as file:
        hashlib.file_digest(file, "sha256")
        file.seek(0)
        return file.read().decode()
