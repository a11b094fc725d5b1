# What the shell of a page begins with. It stands in a checkout, of which there are the samples,
# with `ganger` of this build on its path. `sudo apt install`, `cargo`, `python3 -m venv` and `pip
# install` do what they say with what is there already, so that nothing is built or fetched; what they
# do in earnest tests/bare_debian sees. A `sleep` in a page gives the daemon time to empty its queue,
# but for answers, and lasts as long as that takes. The demo has fewer messages than it would have: this is no release
# build.
set -m
export LANG=C.UTF-8 COLUMNS=160

# Reports how a command has ended.
ended() {
    printf '\036%s\036' "$1"
    return "$1"
}

sudo() {
    [ "$1 $2" = 'apt install' ]
}

cargo() {
    case "$1 $2 $3" in
    demo*) ganger "$@" --messages 100 ;;
    'install --locked --path') ;;
    *) echo "cargo $*: not in the tests" >&2 && return 1 ;;
    esac
}

# The database at $1, with the SQL $2, or that of stdin.
sqlite3() {
    "$VENV/bin/python3" -c '
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
sql = sys.argv[2] if len(sys.argv) > 2 else sys.stdin.read()
statement = ""
for part in sql.split(";"):
    statement += part + ";"
    if sqlite3.complete_statement(statement):
        for row in database.execute(statement):
            print(*row, sep="|")
        statement = ""
' "$@"
}

sleep() {
    until [ "$(sqlite3 ganger.db "SELECT count(*) FROM consumer_messages WHERE queue <> 'greetings'")" = 0 ]; do
        command sleep 0.05
    done
}

# The pool of samples/python.
first_pool() {
    cp -r samples/python ~/first-pool && cd ~/first-pool && ln -s "$VENV" venv
}
