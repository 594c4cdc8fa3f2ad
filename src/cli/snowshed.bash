# Completion of snowshed(1) for bash.                     -*- shell-script -*-

_snowshed()
{
    local cur=${COMP_WORDS[COMP_CWORD]} command="" word i
    local common="--redis --cacert --cert --key --timeout --json --help --usage --version"
    local commands="get invalidate watch scan check locks doctor"

    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        --redis | --cacert | --cert | --key | --timeout | -r | -t)
            ((i++)) # and its value
            ;;
        -* | =) ;;
        *)
            command=$word
            break
            ;;
        esac
    done
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --cacert | --cert | --key) # of a file
        # shellcheck disable=SC2207
        COMPREPLY=($(compgen -f -- "$cur"))
        return
        ;;
    --redis | --mysql | --query | --timeout | --rate | --count | --seconds | \
        --sample | --grace | --cache | --lock)
        return
        ;;
    esac
    if [ -z "$command" ]; then
        # one candidate per word is meant
        # shellcheck disable=SC2207
        COMPREPLY=($(compgen -W "$common $commands" -- "$cur"))
        return
    fi
    case $command in
    get) common+=" --escaped --raw" ;;
    invalidate) common+=" --escaped --tags --all-entries --rate" ;;
    watch) common+=" --escaped --count --seconds --rate" ;;
    scan) common+=" --rate" ;;
    check) common+=" --mysql --query --sample --rate --grace" ;;
    locks) common+=" --escaped --exact-key --rate" ;;
    doctor) common+=" --cache --lock" ;;
    esac
    # shellcheck disable=SC2207
    [[ $cur != -* ]] || COMPREPLY=($(compgen -W "$common" -- "$cur"))
}

complete -F _snowshed snowshed
