#!/bin/sh
# Notes how full the disk is.
set -e
df -P . | tail -n 1 >> readings
