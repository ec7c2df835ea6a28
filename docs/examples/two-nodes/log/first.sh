# shellcheck shell=sh
# Run once by the image of PostgreSQL, when the first server's database was made: it lets a standby in, and confirms
# nothing from its next start on that the standby has not.
set -eu
echo "host replication goondan samenet scram-sha-256" >> "$PGDATA/pg_hba.conf"
psql --username goondan --dbname goondan --set ON_ERROR_STOP=1 \
    --command "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (log_1, log_2)'" \
    --command "ALTER SYSTEM SET wal_keep_size = '1GB'"
