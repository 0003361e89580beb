#!/bin/sh
# A hook's payload from standard input becomes a file in $AEP_HOOK_DIR.
# usage: hookdir.sh ADAPTER [EVENT]; AEP_HOOK_WAIT is how many seconds to wait for an answer
d=${AEP_HOOK_DIR:?} w=${AEP_HOOK_WAIT:-0} i=0 h=
[ "$w" -gt 0 ] && h=.held
n=$(date +%s)-$(uname -n | tr . -)-$$.$1${2:+.$2}$h
cat >"$d/.$n" && mv "$d/.$n" "$d/$n.json" || exit 0
while [ "$i" -lt $((w * 10)) ]; do
	[ -f "$d/$n.reply" ] && { cat "$d/$n.reply"; rm -f "$d/$n.reply"; exit 0; }
	sleep 0.1 2>/dev/null || sleep 1
	i=$((i + 1))
done
exit 0
