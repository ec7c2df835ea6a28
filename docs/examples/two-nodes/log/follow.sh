# shellcheck shell=sh
# Makes a standby of the server $1, which knows it as $2, unless there is a database already; then runs it.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    export PGPASSWORD="$POSTGRES_PASSWORD"
    until pg_basebackup --write-recovery-conf --checkpoint fast --pgdata "$PGDATA" \
        --dbname "host=$1 user=goondan application_name=$2"; do
        sleep 1
    done
    chmod 0700 "$PGDATA"
fi
exec postgres
