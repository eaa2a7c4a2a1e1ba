# Completion of fedhpc's commands, names, keys and values in bash. An installation has it where bash-completion looks;
# elsewhere: source tools/completion.bash. What there is to complete is asked of the program, once a shell.

# _fedhpc_ask PROGRAM: fills _fedhpc_keys, lines `KEY VALUE...`, and _fedhpc_names, lines `KIND NAME...`.
_fedhpc_ask() {
  [ -z "${_fedhpc_keys:-}" ] || return 0
  _fedhpc_keys=$("$1" help keys 2>/dev/null | awk '
    /^[a-z_]+\.[a-z_0-9]+$/ { key = $0 }
    /^  allowed: / {
      sub(/^  allowed: /, "")
      if (!sub(/^(one|any) of: /, "")) $0 = ""
      sub(/ \(.*/, ""); gsub(/,/, "")
      print key, $0
    }' | sort -u)
  _fedhpc_names=$("$1" list 2>/dev/null | tr -d , | tr '\t' ' ')
}

# _fedhpc_words WORD...: those that begin with what is being typed, each once: methods of one key may take other values.
_fedhpc_words() { mapfile -t COMPREPLY < <(compgen -W "$*" -- "$current" | awk '!seen[$0]++'); }

# _fedhpc_files [ENDING...]: folders, and files that end so ('': all), which the shell escapes.
_fedhpc_files() {
  local ending typed=${current#[\"\']}
  typed=${typed//\\/}
  mapfile -t COMPREPLY < <(compgen -d -- "$typed"
    for ending in "$@"; do compgen -f -X "!*${ending:+.$ending}" -- "$typed"; done)
  compopt -o filenames 2>/dev/null
}

# _fedhpc_values: of the key that is being typed.
_fedhpc_values() {
  _fedhpc_words "$(awk -v key="${key#--}" '$1 == key { $1 = ""; print }' <<<"$_fedhpc_keys")"
  [ ${#COMPREPLY[@]} -gt 0 ] || case $key in
    --run.plugin) _fedhpc_files so py ;;
    *) _fedhpc_files '' ;;
  esac
}

_fedhpc_options() {
  _fedhpc_words "$@" "$(awk '{ print "--" $1 "=" }' <<<"$_fedhpc_keys")"
  [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
}

_fedhpc() {
  local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]:-} current=${COMP_WORDS[COMP_CWORD]} key=
  local -r commands='run resume plan list help show export'
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _fedhpc_words "$commands --version --help"
    return
  fi
  # Bash takes = as a word of its own: --run.device = cp
  if [ "$current" = = ]; then
    key=${COMP_WORDS[COMP_CWORD - 1]} current=
  elif [ "${COMP_WORDS[COMP_CWORD - 1]}" = = ]; then
    key=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  case $command in run | resume | plan | list | help | show) _fedhpc_ask "$program" ;; esac
  case $command in
    run | resume | plan)
      if [[ $key == --* ]]; then
        _fedhpc_values
      elif [[ $current == -* ]]; then
        case $command in
          run) _fedhpc_options --force --go-on --help ;;
          plan) _fedhpc_options --json --series --ranks --help ;;
          *) _fedhpc_options --help ;;
        esac
      elif [ "$command" = resume ]; then
        _fedhpc_files h5 ini
      else
        _fedhpc_files ini
      fi ;;
    list)
      if [[ $key == --* ]]; then
        _fedhpc_values
      elif [[ $current == -* ]]; then
        _fedhpc_words --run.plugin= --help
        [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
      else
        _fedhpc_words "$(awk '{ print $1 }' <<<"$_fedhpc_names")"
      fi ;;
    help) _fedhpc_words "$commands keys" "$(awk '{ $1 = ""; print }' <<<"$_fedhpc_names")" \
      "$(awk '{ print $1; sub(/\..*/, "", $1); print $1 }' <<<"$_fedhpc_keys" | sort -u)" ;;
    show)
      if [ "$COMP_CWORD" -eq 2 ]; then _fedhpc_words model config run
      elif [ "${COMP_WORDS[2]}" = run ]; then _fedhpc_files h5
      elif [[ $key == --* ]]; then _fedhpc_values
      elif [[ $current == -* ]]; then _fedhpc_options --help
      elif [ "${COMP_WORDS[2]}" = model ]; then _fedhpc_files ini h5
      elif [ "$COMP_CWORD" -eq 3 ]; then _fedhpc_files ini
      else _fedhpc_words "$(awk '{ print $1 }' <<<"$_fedhpc_keys")"; fi ;;
    export)
      if [[ $current == -* ]]; then _fedhpc_words --csv --help
      elif [ "${COMP_WORDS[COMP_CWORD - 1]}" = --csv ]; then _fedhpc_files
      else _fedhpc_files h5; fi ;;
  esac
}
complete -F _fedhpc fedhpc
