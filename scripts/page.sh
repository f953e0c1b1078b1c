#!/bin/sh
# Builds the web page into internal/web/dist, from where it is embedded, if its sources
# have changed. Without npm, or without the packages that it fetches, the binary is built
# without the page, and says so where the page would be.
set -eu
cd "$(dirname "$0")/.."

page=internal/web/dist/index.html
newer=$(find web -name node_modules -prune -o -name artefacts -prune -o -type f -newer "$page" -print 2>/dev/null || echo missing)
[ -e "$page" ] && [ -z "$newer" ] && exit 0

without() {
	echo "the web page was not built: $1; conch ui will say so (everything else is there)" >&2
	exit 0
}
command -v npm >/dev/null 2>&1 || without "npm is not installed"
cd web
# npm ci asks the network even when nothing has changed.
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error || without "npm ci failed"
	touch node_modules/.package-lock.json
fi
npm run --silent check
npm run --silent build
