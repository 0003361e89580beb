#!/bin/sh
# A hook's payload from standard input becomes a file in $AEP_HOOK_DIR.
# usage: hookdir.sh ADAPTER [EVENT]; AEP_HOOK_WAIT is how many seconds to wait for an answer
d=${AEP_HOOK_DIR:?} w=${AEP_HOOK_WAIT:-0} i=0 h= b= beat= last=0
[ "$w" -gt 0 ] && h=.held
umask 022 # who takes it may be another user: the directory says who may read
n=$(date +%s)-$(uname -n | tr . -)-$$.$1${2:+.$2}
answer() { [ -f "$d/$n.held.reply" ] && cat "$d/$n.held.reply" && rm -f "$d/$n.held.reply"; }
leave() { rm -f "$d/.$n"; mv "$d/$n.held.json" "$d/$n.json"; answer; exit 0; } 2>/dev/null
trap leave HUP INT TERM
cat >"$d/.$n" && mv "$d/.$n" "$d/$n$h.json" || exit 0
while [ "$i" -lt $((w * 10)) ]; do
	answer && exit 0
	read -r b 2>/dev/null <"$d/.aep-hooks" || b=
	[ "$b" = "$beat" ] || { beat=$b last=$i; }
	[ $((i - last)) -lt 100 ] || leave # nobody is there: ten seconds without a beat
	sleep 0.1 2>/dev/null && i=$((i + 1)) || { sleep 1; i=$((i + 10)); }
done
[ "$w" -eq 0 ] || leave
