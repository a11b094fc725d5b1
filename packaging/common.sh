# Sourced by the scripts beside it, from the top of the repository: what is handed out, laid out in
# target/package, which is where the list of the Debian package in Cargo.toml finds it.

package=target/package
staged=$package/files

complain() {
    echo "$0: $*" >&2
    exit 1
}

# need PROGRAM WHY
need() {
    command -v "$1" >/dev/null || complain "$1 is missing: $2"
}

version() {
    sed -n '0,/^version = "\(.*\)"/s//\1/p' Cargo.toml
}

# The platform that is built for, as Rust calls it.
platform() {
    rustc -vV | sed -n 's/^host: //p'
}

# The moment that packed files bear: that of the last commit, so that the same commit makes the same
# file.
moment() {
    if [ -n "${SOURCE_DATE_EPOCH-}" ]; then
        echo "$SOURCE_DATE_EPOCH"
        return
    fi
    git log -1 --format=%ct 2>/dev/null \
        || complain 'no time of a last commit to date the files by: set SOURCE_DATE_EPOCH'
}

# stage [BINARY]: lays out all files that packages hold, with that program, or with one that is built
# as it is to be handed out.
stage() {
    local binary=${1-} shell unit
    if [ -z "$binary" ]; then
        cargo build --locked --profile dist --features vendored-openssl --bin ganger
        binary=${CARGO_TARGET_DIR:-target}/dist/ganger
    fi
    [ -x "$binary" ] || complain "no program at $binary"
    rm -rf "$staged"
    mkdir -p "$staged"/{bin,completions,man}
    install -m 755 "$binary" "$staged/bin/ganger"
    "$staged/bin/ganger" man --dir "$staged/man"
    for shell in bash zsh fish; do
        "$staged/bin/ganger" completions "$shell" >"$staged/completions/ganger.$shell"
    done
    # As a service its queue is where a service keeps its state, not beside its configuration.
    sed 's|^url = "sqlite:ganger.db" *#|url = "sqlite:/var/lib/ganger/ganger.db"  #|' config/ganger.toml >"$staged/ganger.toml"
    for unit in ganger.service ganger@.service; do
        sed 's|/usr/local/bin/|/usr/bin/|' "config/systemd/$unit" >"$staged/$unit"
    done
    grep -q '^url = "sqlite:/var/lib/ganger/ganger.db"' "$staged/ganger.toml" \
        || complain 'config/ganger.toml has no such line any more as is to be replaced'
}
