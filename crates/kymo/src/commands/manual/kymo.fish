function __kymo_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] manual --complete -- $words[2..-1] 2> /dev/null
end
complete -c kymo -a '(__kymo_complete)'
