#!/usr/bin/env bash
# Lines of code, without comments, blank lines and tests: `tests/lines.sh [FOLDER…]`.
set -euo pipefail
cd "$(dirname "$0")/.."
count() {
  find "$1" -name '*.rs' ! -name 'tests.rs' ! -path '*/tests/*' -print0 | sort -z | xargs -0 awk '
    FNR == 1 { tests = 0 }
    /^#\[cfg\(test\)\]/ { held = 1; next }
    held && /^mod [a-z_]+ \{/ { tests = 1 }
    { held = 0 }
    tests || /^[[:space:]]*$/ || /^[[:space:]]*\/\// { next }
    { n++ }
    END { print n + 0 }' | awk '{ n += $1 } END { print n + 0 }'
}
total=0
for folder in "${@:-preload/src src tools/src}"; do
  for one in $folder; do
    lines=$(count "$one")
    total=$((total + lines))
    printf '%7d  %s\n' "$lines" "$one"
  done
done
printf '%7d  in all\n' "$total"
