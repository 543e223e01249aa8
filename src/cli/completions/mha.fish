# fish completion of mha: the program says what may stand where the cursor is
function __mha_words
    set --local words (commandline -opc)
    set --local lines (mha completion --words $words[2..] "$(commandline -ct)" 2>/dev/null)
    switch "$lines[1]"
        case ':files'
            __fish_complete_path (commandline -ct)
        case ':form*' ''
        case '*'
            printf '%s\n' $lines
    end
end
complete -c mha -f -a '(__mha_words)'
