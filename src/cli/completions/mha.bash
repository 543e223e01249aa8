# bash completion of mha: the program says what may stand where the cursor is
_mha() {
  local IFS=$'\n' word=${COMP_WORDS[COMP_CWORD]} lines
  lines=$(mha completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case $lines in
  :files*) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
  :*) COMPREPLY=() ;;
  *) COMPREPLY=($(compgen -W "$(cut -f1 <<<"$lines")" -- "$word")) ;;
  esac
}
complete -F _mha mha
