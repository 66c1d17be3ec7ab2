#!/usr/bin/env bash
# The exposition and the alert rules, checked by Prometheus' own tools: promtool must be in the PATH (Debian: prometheus).
#   tests/metrics/check.sh FIGURES.prom     a file that `--metrics file:FIGURES.prom` has kept
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
figures=${1:?which file? one that --metrics file:PATH has kept}
command -v promtool >/dev/null || { echo "promtool is not in the PATH" >&2; exit 2; }
promtool check metrics <"$figures"
promtool check rules "$root"/docs/grafana/*.yml
promtool test rules "$root"/tests/metrics/*_test.yml
# Every metric that the dashboard and the rules ask for is one that is told.
for name in $(grep -ohP '(?<!:)\bstrandline_[a-z_]*' "$root"/docs/grafana/*.{json,yml} | sort -u); do
  case $name in strandline_leak_*) continue ;; esac # only where something leaks
  grep -q "^# TYPE $name " "$figures" || { echo "$name is not told" >&2; exit 1; }
done
echo "ok"
