#!/bin/sh
# Packs a directory, under the day of its slot: a run that is repeated replaces its own archive, which is complete
# or not there.
set -e
day=${GANGER_HEADER_GANGER_SLOT%T*}
mkdir -p backups
tar -czf "backups/.$day" "$1"
mv "backups/.$day" "backups/$day.tar.gz"
