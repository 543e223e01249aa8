#compdef mha
# zsh completion of mha: the program says what may stand where the cursor is
_mha() {
  local line
  local -a lines offers
  lines=("${(@f)$(mha completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  case $lines[1] in
  :files) _files; return ;;
  :form*) _message "${lines[1]#:form }"; return ;;
  esac
  for line in $lines; do offers+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}"); done
  _describe -o 'mha' offers
}
# Run by zsh as the function _mha of a file in $fpath, or read by: source <(mha completion zsh)
if [ "$funcstack[1]" = _mha ]; then _mha "$@"; else compdef _mha mha; fi
