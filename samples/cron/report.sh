#!/bin/sh
# Counts the readings; exit status 100 is for work that no further attempt can do.
[ -e readings ] || { echo "no readings" >&2; exit 100; }
echo "$(wc -l < readings) readings" > report
