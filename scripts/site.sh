#!/bin/sh
# Make build/site of docs/ and the pages at the root, in an environment of its own (.venv-site).
# Nothing of it is fetched when it is read: styles, scripts and the search's index are files.
set -eu
cd "$(dirname "$0")/.."

stamp=.venv-site/.stoilo-stamp
wanted="$(cksum < requirements/site.txt) $PWD"
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
    echo "setup: installing what makes the site into .venv-site" >&2
    .venv/bin/python -m venv --clear .venv-site
    .venv-site/bin/python -m pip --disable-pip-version-check --quiet install \
        --require-hashes --only-binary :all: -r requirements/site.txt
    echo "$wanted" > "$stamp"
fi
# -W: a page that leads nowhere ends it
.venv-site/bin/sphinx-build --quiet -W --keep-going --doctree-dir build/site-trees \
    --conf-dir scripts/site --builder html . "${1:-build/site}"
