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

# complete_before RESULTS CONFIG [ARGUMENT...]: whether the result is complete and of this configuration, keys that nobody
# sets and data included, but for keys that the program lets change as it resumes. Of another one a run is due.
complete_before() {
  local results=$1 shown plan free digest planned
  shift
  [ -e "$results" ] && shown=$(alone show run "$results" 2>/dev/null) || return 1
  [ "$(sed -n 's/^status //p' <<<"$shown")" = complete ] || return 1
  plan=$(alone plan "$@" --json 2>/dev/null) || return 1
  [ "$(sed -n 's/^rounds //p' <<<"$shown")" = "$(sed -n 's/.*"run.rounds": "\([0-9]*\)".*/\1/p' <<<"$plan")" ] || return 1
  free=$(alone help resume | sed -n '/^ *Keys that may change:/,$s/^ *\([a-z_]*\.[a-z_]*\)$/\1/p' | grep -vx run.rounds | tr '\n' ' ')
  digest=$(sed -n 's/.*"data_digest": "\([^"]*\)".*/\1/p' <<<"$plan")
  [ -z "$digest" ] || LC_ALL=C grep -aqF "$digest" "$results" || return 1
  planned=$(settings_of_plan <<<"$plan" | settings_without "$free")
  [ -n "$planned" ] && [ "$planned" = "$(settings_of_result "$results" | settings_without "$free")" ]
}

# settings_of_plan, settings_of_result RESULTS: section.key=value line by line. A result file has its configuration in one
# piece, as INI text.
settings_of_plan() { sed -e 's/.*"config": {"//' -e 's/"}, "metrics":.*//' -e 's/": "/=/g' -e 's/", "/\n/g' -e 's/\\u0022/"/g'; }
settings_of_result() {
  LC_ALL=C tr -c '\n\t -~\200-\377' '\001' <"$1" | LC_ALL=C awk '
    !inside && !/\001\[run\]$/ { next }
    { inside = 1; sub(/.*\001/, "") }
    /^$/ { next }
    /^\[.*\]$/ { section = substr($0, 2, length($0) - 2); next }
    !match($0, /^[a-z0-9_.]+ = /) { exit }
    {
      key = substr($0, 1, RLENGTH - 3); value = substr($0, RLENGTH + 1)
      if (value ~ /^".*"$/) { value = substr(value, 2, length(value) - 2); gsub(/\\"/, "\"", value) }
      print section "." key "=" value
    }'
}

# settings_without KEYS: the settings but for those keys, sorted.
settings_without() { awk -F= -v free="$1" 'BEGIN { split(free, keys, " "); for (i in keys) is[keys[i]] } !($1 in is)' | sort; }
