#!/bin/sh
# Make .venv at the root with exactly the locked set; quick when nothing changed.
#
#   setup.sh run    what `make demo` uses: requirements/run.txt
#   setup.sh        everything: tests, checks and torch
#
# Everything `make` needs comes from here, so a fresh machine needs Python, make and git.
set -eu
cd "$(dirname "$0")/.."

stamp=.venv/.stoilo-stamp
whole="$(cat requirements/dev.txt requirements/torch.txt pyproject.toml | cksum) $PWD"
run="$(cat requirements/run.txt pyproject.toml | cksum) run $PWD"
have=$(cat "$stamp" 2>/dev/null || true)
[ "$have" = "$whole" ] && exit 0
[ "$*" = run ] && [ "$have" = "$run" ] && exit 0

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

install() { .venv/bin/python -m pip --disable-pip-version-check --quiet install "$@"; }
locked() { install --require-hashes --only-binary :all: -r "$1"; }

if [ "$have" != "$run" ]; then # else what is there is a part of what is wanted
    echo "setup: creating .venv and installing the locked packages" >&2
    "$python" -m venv --clear .venv
    locked requirements/run.txt
    install --no-deps --no-build-isolation --editable .
    echo "$run" >"$stamp"
fi
[ "$*" = run ] && exit 0

echo "setup: installing what tests and checks use (a few minutes the first time)" >&2
locked requirements/dev.txt
# torch's own file differs by platform and build, so it is pinned by version alone.
install --no-deps -r requirements/torch.txt
if ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    echo "setup: this build of torch does not import without further packages of its own." >&2
    echo "  Install a CPU build of $(cat requirements/torch.txt) into .venv, or all that this one wants" >&2
    echo "  (gigabytes): .venv/bin/python -m pip install -r requirements/torch.txt" >&2
    echo "  then run the same command again." >&2
    exit 1
fi
echo "$whole" >"$stamp"
