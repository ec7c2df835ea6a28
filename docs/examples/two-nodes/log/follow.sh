# shellcheck shell=sh
# Creates a standby of the server $1 with the name $2, unless a database exists; then runs it.
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
