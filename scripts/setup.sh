#!/bin/sh
# Make .venv at the root with exactly the locked set; quick when nothing changed.
# Everything `make` needs comes from here, so a fresh machine needs Python, make and git.
set -eu
cd "$(dirname "$0")/.."

stamp=.venv/.stoilo-stamp
wanted="$(cat requirements/dev.txt requirements/torch.txt pyproject.toml | cksum) $PWD"
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

# The set is locked for Python 3.11, so it comes before a newer python3.
python=${PYTHON:-}
if [ -z "$python" ]; then
    python=python3
    python3.11 -c '' 2>/dev/null && python=python3.11
fi
"$python" - <<'CHECK'
import sys
if sys.version_info < (3, 11):
    sys.exit(f"stoilo needs Python 3.11 or newer, this is {sys.version.split()[0]}; set PYTHON=")
CHECK

echo "setup: creating .venv and installing the locked packages (a few minutes the first time)" >&2
"$python" -m venv --clear .venv
pip=".venv/bin/python -m pip --disable-pip-version-check --quiet"
$pip install --require-hashes --only-binary :all: -r requirements/dev.txt
# torch's own file differs by platform and build, so it is pinned by version alone.
$pip install --no-deps -r requirements/torch.txt
$pip install --no-deps --no-build-isolation --editable .
echo "$wanted" > "$stamp"
