# shellcheck shell=bash
#
# Options, checked before anything is installed or built. What a demo takes is
# in the table that its program is compiled with: demo/NAME/NAME.def, a row a line.
# Source it, and define
#
#   complain TEXT       ends the script with 2 and the usage
#
#   check_options TABLE WORD...    each an option of the table with its value;
#                                  in $checked they are as the program wants them
#   check_uri OPTION URI           of --redis or --mysql
#   split_option WORD...           $name and $value of the first option, and
#                                  $taken, how many words these are

# split_option WORD... : --name VALUE or --name=VALUE.
split_option()
{
    name=${1%%=*}
    taken=1
    case $1 in
    *=*) value=${1#*=} ;;
    *)
        case ${2---} in --*) complain "$name wants a value" ;; esac
        value=$2
        taken=2
        ;;
    esac
}

check_options()
{
    local table=$1 name value taken row
    shift
    checked=()
    while [ $# -gt 0 ]; do
        row=$(find_row "$table" "${1%%=*}") ||
            complain "there is no option '${1%%=*}'"
        split_option "$@"
        check_value "$name" "$value" "$row"
        checked+=("$name" "$value")
        shift "$taken"
    done
}

# find_row TABLE OPTION : its kind, and what it is limited to.
find_row()
{
    local pattern='^([A-Z]+)\("([a-z-]+)", [a-z_.]+(, "?([^")]*)"?)?\)$' line
    while IFS= read -r line; do
        [[ $line =~ $pattern && --${BASH_REMATCH[2]} = "$2" ]] || continue
        echo "${BASH_REMATCH[1]} ${BASH_REMATCH[4]//,/ }"
        return 0
    done <"$1"
    return 1
}

# check_value OPTION VALUE ROW ; a file is named from where we were called, and
# the program runs elsewhere.
check_value()
{
    local limits
    read -ra limits <<<"${3#* }"
    case ${3%% *} in
    NUMBER) is_number "$2" "${limits[@]}" || refuse_number "$1" "${limits[@]}" ;;
    REAL) is_real "$2" "${limits[@]}" || refuse_number "$1" "${limits[@]}" ;;
    LIST) check_list "$1" "$2" "${limits[@]}" ;;
    URI) check_uri "$1" "$2" ;;
    OUTPUT)
        check_output "$1" "$2"
        case $2 in /*) ;; *) value=$PWD/$2 ;; esac
        ;;
    esac
}

refuse_number()
{
    complain "$1 must be a number from $2 to $3"
}

# is_number TEXT LEAST MOST : digits. Up to 2^64 - 1, beyond what bash counts
# with, so by length and then by letters.
is_number()
{
    local digits
    [[ $1 =~ ^0*([0-9]+)$ ]] || return 1
    digits=${BASH_REMATCH[1]}
    ! is_less "$digits" "$2" && ! is_less "$3" "$digits"
}

is_less()
{
    [ "${#1}" -lt "${#2}" ] ||
        { [ "${#1}" -eq "${#2}" ] && LC_ALL=C expr "x$1" '<' "x$2" >/dev/null; }
}

is_real()
{
    [[ $1 =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)$ ]] &&
        awk "BEGIN { exit !($1 >= $2 && $1 <= $3) }"
}

# check_list OPTION LIST WORD... : some of the words, with commas.
check_list()
{
    local option=$1 list=$2 word
    shift 2
    while IFS= read -rd , word; do
        case " $* " in
        *" $word "*) [ -n "$word" ] && continue ;;
        esac
        complain "$option does not know '$word'; it takes $* (with commas)"
    done <<<"$list,"
}

check_uri()
{
    case $1=$2 in
    --redis=redis://?* | --redis=unix:/?*) ;;
    --mysql=mysql://*/?*) ;;
    --redis=*) complain "$1 '$2' is not redis://host or unix:/path" ;;
    *) complain "$1 '$2' is not mysql://user@host/database" ;;
    esac
}

check_output()
{
    if [ -d "$2" ]; then
        complain "$1 $2 is a directory"
    elif [ -e "$2" ]; then
        [ -w "$2" ] || complain "$1 $2 cannot be written"
    else
        [ -n "$2" ] || complain "$1 wants the name of a file"
        [ -w "$(dirname -- "$2")" ] || complain "$1 $2 cannot be made"
    fi
}
