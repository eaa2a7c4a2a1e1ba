#!/usr/bin/env bash
# Builds the documentation as a site, warnings as errors: build/docs/index.html, and the headers' in build/docs/headers.
#
#   tools/docs.sh [--no-setup] [FOLDER]
#
# --no-setup installs nothing: where Doxygen or Sphinx is missing, it says so and ends with 77.
set -euo pipefail
setup=yes
if [ "${1:-}" = --no-setup ]; then
  setup= && shift
fi
output=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
output=${output:-build/docs}
python=.deps/venv/bin/python
[ -z "$setup" ] || tools/setup.sh --develop
if ! command -v doxygen >/dev/null || ! "$python" -c 'import sphinx, myst_parser, latex2mathml' 2>/dev/null; then
  echo "docs: Doxygen, Sphinx, myst-parser or latex2mathml is missing; tools/setup.sh --develop installs them" >&2
  exit 77
fi
mkdir -p "$output"
output=$(cd "$output" && pwd)

# What a site is made of: the pages and the files to which they lead, below one folder as in the project.
PYTHONPATH=python "$python" -m fedhpc.tools docs_site "$output/.source"
"$python" -m sphinx -q -W --keep-going -j 1 -c tools/site -d "$output/.doctrees" -b html "$output/.source" "$output"
echo '<!DOCTYPE html><title>fedhpc</title><meta http-equiv="refresh" content="0; url=README.html">' > "$output/index.html"

{
  cat tools/site/Doxyfile
  echo "OUTPUT_DIRECTORY = \"$output\""
  echo "PROJECT_NUMBER = $(cat VERSION)"
} | doxygen -
echo "docs: $output/index.html, $output/headers/index.html"
