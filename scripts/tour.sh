#!/bin/sh
# A short tour of the real program, for `make run`. It uses your own home and
# daemon and a session of its own, which it closes at the end.
set -u

bin=$(cd "$(dirname "$0")/.." && pwd)/bin/conch
[ -x "$bin" ] || { echo "no $bin: run make first" >&2; exit 1; }
conch() { "$bin" "$@"; }

bold= plain=
if [ -t 1 ]; then
	bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi
title() { printf '\n%s\n' "$*"; }
# show prints a command line, runs it, and says its status if it is not 0.
show() {
	printf '%s$ %s%s\n' "$bold" "$1" "$plain"
	eval "$1" </dev/null
	status=$?
	[ "$status" = 0 ] || printf '(exit status %s)\n' "$status"
}

work=$(mktemp -d) || exit 1
label=
leave() {
	[ -z "$label" ] || conch close "$label" >/dev/null 2>&1
	rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cd "$work" || exit 1

title 'conch runs commands in shells that keep their state. First the daemon:'
printf '%s$ conch up%s\n' "$bold" "$plain"
conch up || exit 1

# Somebody's own session is not ours to use, nor to close.
for name in tour "tour:$$"; do
	if conch new "$name" >/dev/null 2>&1; then
		label=$name
		break
	fi
done
[ -n "$label" ] || { conch new "tour:$$"; exit 1; }

title 'Two calls, one bash: directory, variables and functions stay.'
show "conch exec -s $label 'name=conch; hi() { echo \"hi from \$name\"; }; mkdir src; cd src'"
show "conch exec -s $label 'hi; basename \$PWD'"

title 'stdout and stderr are apart and exact, the exit status is real.'
show "conch exec -s $label 'echo out; echo err >&2; false' 2>/dev/null"

title 'A timeout ends all of a command: what had not run yet never runs.'
show "conch exec -s $label -t 1s 'sleep 60; echo never > file'"
show "conch exec -s $label 'ls; hi'"

title 'A command can kill its shell and not its session.'
show "conch exec -s $label 'kill -9 \$\$'"
show "conch exec -s $label 'hi; basename \$PWD'"

title 'Nothing hangs on an unclosed quote or on input that nobody gives.'
show "conch exec -s $label 'echo \"oops'"
show "conch exec -s $label cat"

title 'What a program reads is JSON. Background output is kept when it comes late.'
show "conch exec -s $label --json '(sleep 0.3; echo late) & echo now'"

title 'Everything is on the session'\''s tape.'
show "conch exec -s $label 'sleep 0.5'"
show "conch history -s $label -n 3"

title 'What is open, and the end of this one:'
show "conch sessions"
show "conch close $label"
label=

cat <<END

To try next (the daemon goes on; $bin is the program):
  bin/conch exec 'cd ~ && ls'         a session called main, made on first use
  bin/conch exec -s build make        another one, side by side
  bin/conch exec --jsonl 'seq 3'      events as they come
  bin/conch doctor                    is this machine fit for conch?
  bin/conch help                      all verbs; README.md has examples
To stop: bin/conch down (sessions go on) or bin/conch down --all (everything ends).
END
