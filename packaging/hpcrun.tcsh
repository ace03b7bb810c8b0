# Completion of hpcrun in tcsh: source this file in ~/.tcshrc. The program is asked as bash asks it.
complete hpcrun 'p@*@`sh -c '"'"'set -f; set -- $COMMAND_LINE; n=$#; case $COMMAND_LINE in *" ") ;; *) n=$((n - 1)) ;; esac; COMP_WORDS=$COMMAND_LINE COMP_CWORD=$n _HPCRUN_COMPLETE=complete_bash hpcrun 2>/dev/null'"'"'`@'
