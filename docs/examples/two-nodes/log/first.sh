# shellcheck shell=sh
# The image of PostgreSQL runs this once, after it has created the first server's database. Allows a standby to connect,
# and, from the next start on, confirms only data that the standby has.
set -eu
echo "host replication goondan samenet scram-sha-256" >> "$PGDATA/pg_hba.conf"
psql --username goondan --dbname goondan --set ON_ERROR_STOP=1 \
    --command "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (log_1, log_2)'" \
    --command "ALTER SYSTEM SET wal_keep_size = '1GB'"
