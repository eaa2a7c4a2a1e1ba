# Sourced by jobs/environment.sh and by the arrays that tools/reproduce.py submits.
# shellcheck shell=bash

# await_end PROCESS: waits for the end of a process of this shell's, whatever signals come; its exit code.
await_end() {
  local pause=0.05 looks=0
  # No `wait` while the process lives: a signal that comes together with its end makes bash 5.2 leave `wait` with
  # the code thrown away, and say -1 or 255 from then on. In a `sleep` it keeps the code.
  while kill -0 "$1" 2>/dev/null; do
    sleep "$pause"
    [ $((looks += 1)) -lt 20 ] || pause=0.5
  done
  wait "$1"
}
