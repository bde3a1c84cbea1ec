#compdef kymo
_kymo() {
    local -a found open
    found=("${(@f)$($words[1] manual --complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
    found=("${(@)found%%$'\t'*}")
    open=("${(@M)found:#*:}")
    found=("${(@)found:#*:}")
    if [[ -z "$open$found" ]]; then
        _files
        return
    fi
    compadd -Q -S '' -- "${(@)open:#}"
    compadd -Q -- "${(@)found:#}"
}
if [[ $funcstack[1] == _kymo ]]; then _kymo "$@"; else compdef _kymo kymo; fi
