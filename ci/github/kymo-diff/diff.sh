#!/usr/bin/env bash
# Shell part of the action: KYMO, BEFORE, AFTER, GATES, RUNS, OPTIONS, UNDECIDED come from its
# inputs. The commands are split into words as the shell does, and nothing in them is expanded.
set -uo pipefail

gates=()
while IFS= read -r gate; do
  gate="${gate#"${gate%%[![:space:]]*}"}"
  [ -n "$gate" ] && gates+=(--gate "$gate")
done <<< "${GATES:-}"
set -f
read -r -a before <<< "$BEFORE"
read -r -a after <<< "$AFTER"
read -r -a options <<< "${OPTIONS:-}"

report="$("${KYMO:-kymo}" diff --run -n "${RUNS:-20}" --report md "${gates[@]+"${gates[@]}"}" \
  "${options[@]+"${options[@]}"}" -- "${before[@]}" -- "${after[@]}")"
status=$?
printf '%s\n' "$report" | tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}"
case "$status" in
  4) echo "::error::kymo diff: a gate failed" ;;
  5)
    echo "::warning::kymo diff: a gate is undecided"
    [ "${UNDECIDED:-pass}" = pass ] && status=0
    ;;
esac
exit "$status"
