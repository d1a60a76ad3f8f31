#!/bin/bash
# readme-env.sh - brings README's table of variables and its kernel up to date.
set -eu
cd "$(dirname "$0")/.."

usage() {
    cat <<'T'
Usage: scripts/readme-env.sh

Replaces the table of variables in README.md by what build-cpu/src/tools/tern-info --env --markdown prints, and the kernel by
examples/put_signal.cu. A test (repo/readme) fails when they differ.
T
}

case ${1:-} in
--help | -h) usage; exit 0 ;;
"") ;;
*) usage >&2; exit 2 ;;
esac
scripts/build.sh cpu --only src/tools/tern-info
table=$(env -i PATH="$PATH" build-cpu/src/tools/tern-info --env --markdown)
TABLE=$table python3 - <<'P'
import os, re
with open("README.md", encoding="utf-8") as f:
    text = f.read()
with open("examples/put_signal.cu", encoding="utf-8") as f:
    kernel = f.read()
text = re.sub(r"(?<=<!-- variables -->\n).*?(?=<!-- end of variables -->)", lambda m: os.environ["TABLE"].strip() + "\n", text, flags=re.S)
text = re.sub(r"(?<=```cuda\n)/\* put_signal.cu.*?(?=```\n)", lambda m: kernel, text, flags=re.S)
with open("README.md", "w", encoding="utf-8") as f:
    f.write(text)
P
