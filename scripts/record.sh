#!/bin/sh
# Makes docs/vim.cast: conch types into an editor, and its terminal is recorded.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/docs/vim.cast
conch=$PWD/bin/conch
CONCH_HOME=$(mktemp -d)
export CONCH_HOME
work=$(mktemp -d)
trap '"$conch" down --all >/dev/null 2>&1; rm -rf "$CONCH_HOME" "$work"' EXIT
cd "$work"

"$conch" run --tty --name ed --size 60x12 'vi -N -u NONE -n haiku.txt' >/dev/null
shown() { "$conch" screen ed --contains "$1" --wait-stable 400ms -t 20s >/dev/null; }
shown 'haiku'
for word in i an ' old' ' silent' ' pond' '<Enter>' 'a frog jumps' ' into the pond' '<Enter>' splash! ' Silence again.' '<Esc>' ; do
	"$conch" keys ed "$word"
	"$conch" screen ed --wait-stable 200ms -t 20s >/dev/null
done
"$conch" keys ed ':s/splash/SPLASH/<Enter>'
shown SPLASH
"$conch" keys ed ':wq<Enter>'
"$conch" wait ed --exit -t 20s
"$conch" log export --asciicast --process ed -o "$out"
