# Completion of snowshed(1) for bash.                     -*- shell-script -*-

_snowshed()
{
    local cur=${COMP_WORDS[COMP_CWORD]} command="" word i
    local common="--redis --cacert --cert --key --timeout --json --help --usage --version"
    local commands="get why invalidate watch top caches scan check locks lock
        doctor"

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
        --sample | --grace | --top | --cache | --lock)
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
    why) common+=" --escaped" ;;
    invalidate) common+=" --escaped --stdin --null --tags --all-entries --rate" ;;
    watch) common+=" --escaped --count --seconds --rate" ;;
    top) common+=" --top --seconds --rate" ;;
    scan) common+=" --top --rate" ;;
    caches | locks) common+=" --rate" ;;
    check) common+=" --mysql --query --sample --rate --grace" ;;
    lock) common+=" --escaped --exact-key --release-dead --grace" ;;
    doctor) common+=" --cache --lock" ;;
    esac
    # shellcheck disable=SC2207
    [[ $cur != -* ]] || COMPREPLY=($(compgen -W "$common" -- "$cur"))
}

complete -F _snowshed snowshed
