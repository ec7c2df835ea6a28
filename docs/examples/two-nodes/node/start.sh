# shellcheck shell=sh
# Runs the daemon of a node. Before its first start it writes config.json: the node is called $NODE, and its log is at
# $LOG_URL. From then on it leaves that file alone.
set -eu
config=$GOONDAN_STATE_ROOT/config.json
if [ ! -s "$config" ]; then
    # Only its owner reads the password, and nobody half of the file.
    (umask 077 && printf '{"replication": {"node": "%s",\n  "postgres": "%s"}}\n' "$NODE" "$LOG_URL" >"$config.new")
    mv "$config.new" "$config"
fi
# The daemon has no password in its environment.
unset LOG_URL
exec goondan-orchestrator "$@"
