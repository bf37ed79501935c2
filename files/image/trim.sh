#!/bin/sh
# The last step of every image: takes away what only an installation needs. trim.sh ROOT, by the builder and by each Containerfile.
set -eu
root=${1%/}

rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old \
    "$root"/var/cache/ldconfig "$root"/var/log/* "$root"/usr/share/doc-base
