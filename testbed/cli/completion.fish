function %(complete_func)s
    set -l words (commandline -opc)
    set -lx COMP_LINE (commandline -cp | string collect)
    for line in (%(complete_var)s=fish_complete $words[1] 2>/dev/null)
        set -l parts (string split \t -- $line)
        switch $parts[1]
            case plain
                string join \t -- $parts[2..]
            case file
                __fish_complete_path (commandline -ct)
            case dir
                __fish_complete_directories (commandline -ct)
        end
    end
end
complete --no-files --keep-order --command %(prog_name)s --arguments "(%(complete_func)s)"
