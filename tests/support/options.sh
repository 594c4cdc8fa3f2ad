# shellcheck shell=bash
#
# Checks options before anything is installed or built. The options of a demo
# are in the table that its program is compiled with: demo/NAME/NAME.def, one row
# per line. Source this file and define
#
#   complain TEXT       prints the usage and TEXT, and exits with 2
#
# It has
#
#   check_options TABLE WORD...    checks options of the table with their values
#                                  and puts them into $checked, for the program
#   check_uri OPTION URI           checks the value of --redis or --mysql
#   split_option WORD...           puts the first option into $name and $value,
#                                  and the number of its words into $taken

# split_option WORD... : --name VALUE or --name=VALUE.
split_option()
{
    name=${1%%=*}
    taken=1
    case $1 in
    *=*) value=${1#*=} ;;
    *)
        case ${2---} in --*) complain "$name needs a value" ;; esac
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
        if [ "${row%% *}" = FLAG ]; then
            [ "${1#*=}" = "$1" ] || complain "${1%%=*} takes no value"
            checked+=("$1")
            shift
            continue
        fi
        split_option "$@"
        check_value "$name" "$value" "$row"
        checked+=("$name" "$value")
        shift "$taken"
    done
}

# find_row TABLE OPTION : its kind and its limits.
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

# check_value OPTION VALUE ROW : the name of a file is relative to the caller's
# directory, and the program runs in another one.
check_value()
{
    local limits
    read -ra limits <<<"${3#* }"
    case ${3%% *} in
    NUMBER) is_number "$2" "${limits[@]}" || refuse_number "$1" "${limits[@]}" ;;
    REAL) is_real "$2" "${limits[@]}" || refuse_number "$1" "${limits[@]}" ;;
    LIST) check_list "$1" "$2" "${limits[@]}" ;;
    CHOICE)
        case $2 in *,*) complain "$1 is one of these: ${limits[*]}" ;; esac
        check_list "$1" "$2" "${limits[@]}"
        ;;
    URI) check_uri "$1" "$2" ;;
    FOLDER | OUTPUT)
        if [ "${3%% *}" = FOLDER ]; then
            check_folder "$1" "$2"
        else
            check_output "$1" "$2"
        fi
        case $2 in /*) ;; *) value=$PWD/$2 ;; esac
        ;;
    esac
}

refuse_number()
{
    complain "$1 must be a number from $2 to $3"
}

# is_number TEXT LEAST MOST : digits only. Numbers go up to 2^64 - 1, which bash
# cannot represent, so they are compared by length and then as text.
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

# check_list OPTION LIST WORD... : some of the words, separated by commas.
check_list()
{
    local option=$1 list=$2 word
    shift 2
    while IFS= read -rd , word; do
        case " $* " in
        *" $word "*) [ -n "$word" ] && continue ;;
        esac
        complain "$option does not know '$word', only $* (separated by commas)"
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

check_folder()
{
    [ -d "$2" ] || complain "$1 $2 is not a directory"
    [ -w "$2" ] || complain "$1 $2 cannot be written to"
}

check_output()
{
    if [ -d "$2" ]; then
        complain "$1 $2 is a directory"
    elif [ -e "$2" ]; then
        [ -w "$2" ] || complain "$1 $2 cannot be written"
    else
        [ -n "$2" ] || complain "$1 needs the name of a file"
        [ -w "$(dirname -- "$2")" ] || complain "$1 $2 cannot be created"
    fi
}
