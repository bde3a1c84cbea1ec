_kymo() {
    local line=${COMP_LINE:0:COMP_POINT} words cur before IFS
    IFS=$' \t\n' read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur=${words[${#words[@]} - 1]}
    # To bash, a colon or an equals sign ends a word.
    before=${cur%"${cur##*[:=]}"}
    IFS=$'\n'
    COMPREPLY=($("${words[0]}" manual --complete -- "${words[@]:1}" 2> /dev/null))
    COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2> /dev/null
    return 0
}
complete -o default -F _kymo kymo
