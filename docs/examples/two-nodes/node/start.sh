# shellcheck shell=sh
# Runs the daemon of a node. Before the first start, it writes config.json with the node's name $NODE and the log's URL
# $LOG_URL. It does not change an existing config.json.
set -eu
config=$GOONDAN_STATE_ROOT/config.json
if [ ! -s "$config" ]; then
    # Only the owner can read the password, and no process reads an incomplete file.
    (umask 077 && printf '{"replication": {"node": "%s",\n  "postgres": "%s"}}\n' "$NODE" "$LOG_URL" >"$config.new")
    mv "$config.new" "$config"
fi
# The daemon has no password in its environment.
unset LOG_URL
exec goondan-orchestrator "$@"
