# bash completion for klat. scripts/reference.py appends the tables of commands and programs to the installed file.
# shellcheck shell=bash disable=SC2154

# Global: bash-completion reads this file in a function.
declare -gA _klat_options # of each command and program
declare -gA _klat_words   # that an option of a program takes, by "PROGRAM --OPTION"

_klat()
{
	local word="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}" name="${COMP_WORDS[1]}" words=

	if ((COMP_CWORD == 1)); then
		words="$_klat_commands $_klat_programs --help --version"
	elif [[ $name == export && $previous == --format ]]; then
		words="gobench googlebench pyperf hgrm parquet openmetrics junit ktap"
	elif [[ -n ${_klat_words["$name $previous"]-} ]]; then
		words=${_klat_words["$name $previous"]}
	elif [[ $word == -* || " $_klat_programs " == *" $name "* ]]; then
		words=${_klat_options[$name]-}
	elif [[ ($name == run || $name == ab) && $previous != --* ]]; then
		words="all $_klat_programs"
	elif [[ ($name == soak || $name == explain) && $previous != --* ]]; then
		words=$_klat_programs
	fi
	case $words in
	# An option of a program takes a directory or another value.
	DIR) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
	[[:upper:]]*) COMPREPLY=() ;;
	'') mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
	*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word") ;;
	esac
}
complete -o filenames -F _klat klat
