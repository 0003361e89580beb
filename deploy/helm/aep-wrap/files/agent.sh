#!/bin/sh
# Plays an agent: it reports hooks, asks whether it may act, and ends. A real one
# calls hookdir.sh as its hook command, and knows nothing else of aep-wrap.
hook() { # EVENT MEMBERS... [waits when AEP_HOOK_WAIT is set]
	printf '{"session_id":"%s","cwd":"%s","hook_event_name":"%s"%s}' "$session" "$PWD" "$1" "$2" |
		sh "${AEP_HOOKDIR_SH:-/opt/aep/hookdir.sh}" claude-code "$1"
}
session=$(cat /proc/sys/kernel/random/uuid)
tool='"tool_name":"Bash","tool_use_id":"toolu_1","tool_input":{"command":"make deploy"}'

hook SessionStart ',"source":"startup"'
hook UserPromptSubmit ',"prompt_id":"p1","prompt":"deploy it"'
hook PreToolUse ",\"prompt_id\":\"p1\",$tool"
echo "may I run make deploy?"
answer=$(AEP_HOOK_WAIT=${AEP_PERMISSION_WAIT:-60} hook PermissionRequest ",\"prompt_id\":\"p1\",$tool")
case $answer in
*'"behavior":"allow"'*) said=allowed code=0 ;;
*'"behavior":"deny"'*) said=denied code=3 ;;
*) said="nobody answered: my own dialog says no" code=4 ;;
esac
echo "$said"
[ "$code" = 0 ] && hook PostToolUse ",\"prompt_id\":\"p1\",$tool,\"tool_response\":{\"stdout\":\"deployed\"}"
hook Stop ',"prompt_id":"p1"'
hook SessionEnd ',"reason":"other"'
exit "$code"
