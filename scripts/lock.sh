#!/bin/sh
# Resolve requirements/dev.in to hash-pinned requirements/dev.txt, without index lines.
set -eu
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet pip-tools
"$tools/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
  --output-file requirements/dev.txt requirements/dev.in
