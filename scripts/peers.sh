#!/bin/sh
# Make .venv-bench: the peers that `make bench` measures beside ours, from a locked set.
# Without them the bench runs all the same and says what it left out.
set -eu
cd "$(dirname "$0")/.."

stamp=.venv-bench/.stoilo-stamp
wanted="$(cksum < requirements/bench.txt) $PWD"
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

echo "setup: installing the bench's peers into .venv-bench" >&2
.venv/bin/python -m venv --clear .venv-bench
if .venv-bench/bin/python -m pip --disable-pip-version-check --quiet install \
    --require-hashes --only-binary :all: -r requirements/bench.txt; then
    echo "$wanted" > "$stamp"
else
    rm -rf .venv-bench
    echo "setup: the peers could not be installed; their columns stay empty" >&2
fi
