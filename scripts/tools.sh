#!/bin/sh
# Installs what the tests need beyond Go: bash, the C compiler of the race
# detector, programs the tests use as an independent opinion, and a browser with
# what builds the page for it.
set -eu

need=
has() { command -v "$1" >/dev/null 2>&1 || need="$need $2"; }
has bash bash
has gcc gcc
has ps procps
has vi vim-tiny
has less less
has setsid util-linux
# The small package of it has no http.server, which the tests wait for.
python3 -c 'import http.server' >/dev/null 2>&1 || need="$need python3"
has tmux tmux
has curl curl
has git git
[ -e /usr/include/stdlib.h ] || need="$need libc6-dev"
# Without these the tests of the page are skipped, loudly, and where CI is set they fail.
required=$need
has chromium chromium
has npm npm
[ -z "$need" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing:$need"
	apt-get update -q >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $need >/dev/null
elif [ -z "$required" ]; then
	echo "the page is not tested without:$need (install them, or run make as root on Debian)" >&2
else
	echo "the tests need:$need (install them, or run make as root on Debian)" >&2
	exit 1
fi
