# Sourced by jobs/environment.sh: what earlier starts of a job have left beside the result file.
# shellcheck shell=bash disable=SC2154  # restarts, which the scheduler's file has

# kills_in_a_row STEM ROUND: counts one kill more since the newest checkpoint, of that ROUND, in STEM.kills, and prints how
# many there are. Those of an earlier job do not count: its memory may have been another.
kills_in_a_row() {
  local kills=0 round=
  [ "$restarts" -eq 0 ] || [ ! -r "$1.kills" ] || read -r kills round <"$1.kills"
  case $kills in '' | *[!0-9]*) kills=0 ;; esac
  [ "$round" = "$2" ] || kills=0
  # Where it cannot be written, FEDHPC_MAX_RESTARTS is the end.
  printf '%s %s\n' $((kills + 1)) "$2" 2>/dev/null >"$1.kills" || true
  printf '%s\n' $((kills + 1))
}
