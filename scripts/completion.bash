# bash completion for klat. The functions of its programs follow in the installed file, each made by its own --print-completion.
# shellcheck shell=bash

_klat()
{
	local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words

	if ((COMP_CWORD == 1)); then
		words=$(compgen -A function _klat_)
		mapfile -t COMPREPLY < <(compgen -W "run ab summary plot compare history plan export doctor lab ${words//_klat_/} --help --version" -- "$word")
	elif declare -F "_klat_$command" >/dev/null; then
		"_klat_$command"
	elif [[ $word == -* ]]; then
		words=$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u)
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
	elif [[ $command == export && ${COMP_WORDS[COMP_CWORD - 1]} == --format ]]; then
		mapfile -t COMPREPLY < <(compgen -W "gobench googlebench pyperf hgrm parquet openmetrics junit ktap" -- "$word")
	elif [[ ($command == run || $command == ab) && ${COMP_WORDS[COMP_CWORD - 1]} != --* ]]; then
		words=$(compgen -A function _klat_)
		mapfile -t COMPREPLY < <(compgen -W "all ${words//_klat_/}" -- "$word")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}
complete -o filenames -F _klat klat
