//! A database on a server, whichever it is: what a test does to it that runs on each.

use super::base::Base;
use super::mariadb::MariaDatabase;
use super::postgres::PgDatabase;
use super::table::Table;

/// An empty database of a test's own.
pub(crate) enum Database {
    Postgres(PgDatabase),
    Mariadb(MariaDatabase),
}

/// Does the same on each.
macro_rules! on_each {
    ($self:expr, $database:ident => $what:expr) => {
        match $self {
            Database::Postgres($database) => $what,
            Database::Mariadb($database) => $what,
        }
    };
}

impl Database {
    /// On the server that the tests on this one share, unless the test is about files.
    pub(super) fn of_this_test() -> Option<Self> {
        match Base::of_this_test() {
            Base::Sqlite => None,
            Base::Postgres => Some(Self::Postgres(PgDatabase::shared())),
            Base::Mariadb => Some(Self::Mariadb(MariaDatabase::shared())),
        }
    }

    /// The same, in a test that is about servers.
    pub(crate) fn shared() -> Self {
        Self::of_this_test().expect("a test that is about servers")
    }

    /// On a server of the test's own, which it may kill, freeze and start again.
    pub(crate) fn alone() -> Self {
        match Base::of_this_test() {
            Base::Sqlite => panic!("a test that is about servers"),
            Base::Postgres => Self::Postgres(PgDatabase::alone()),
            Base::Mariadb => Self::Mariadb(MariaDatabase::alone()),
        }
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        on_each!(self, database => database.port())
    }

    /// Its address, for one who may do everything there.
    pub(crate) fn url(&self) -> String {
        on_each!(self, database => database.url())
    }

    /// The same by another way to the server.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.url()
            .replace(&format!(":{}/", self.port()), &format!(":{port}/"))
    }

    /// A connection of the test's own, which sees the tables as any other program would.
    pub(crate) fn table(&self) -> Table {
        on_each!(self, database => database.table())
    }

    /// Has statements run; what they say, a line for a row, its columns parted by `|`.
    pub(crate) fn ask(&self, sql: &str) -> String {
        on_each!(self, database => database.ask(sql))
    }

    /// Sets the server's clock: see there.
    pub(crate) fn set_clock(&self, offset: &str) {
        on_each!(self, database => database.set_clock(offset));
    }

    /// What time it is there, in milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        let now = match self {
            Self::Postgres(_) => {
                "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
            }
            Self::Mariadb(_) => "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
        };
        self.ask(now).parse().unwrap()
    }

    /// How many transactions that change something were begun on the server so far, or a few more.
    pub(crate) fn transactions(&self) -> i64 {
        let begun = match self {
            Self::Postgres(_) => self.ask("SELECT txid_snapshot_xmax(txid_current_snapshot())"),
            // In a table MariaDB and MySQL have it in different places.
            Self::Mariadb(_) => self.ask("SHOW GLOBAL STATUS LIKE 'Com_begin'"),
        };
        begun.trim_start_matches("Com_begin|").parse().unwrap()
    }

    /// Stops the server as an operator would.
    pub(crate) fn stop(&self) {
        on_each!(self, database => database.stop());
    }

    /// Starts it again with what it has stored.
    pub(crate) fn start_again(&self) {
        on_each!(self, database => database.start_again());
    }

    /// `kill -9`.
    pub(crate) fn kill(&self) {
        on_each!(self, database => database.kill());
    }

    /// The same when who follows has what was committed, and so in the middle of whatever is done: see there.
    pub(crate) fn kill_followed(&self, by: &Self) {
        match (self, by) {
            (Self::Mariadb(database), Self::Mariadb(by)) => database.kill_followed(by),
            // It commits nothing before that.
            _ => self.kill(),
        }
    }

    /// Lets it stand still, its connections open.
    pub(crate) fn freeze(&self) {
        on_each!(self, database => database.freeze());
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        on_each!(self, database => database.thaw());
    }

    /// The same database on a server that follows this one and may only be read: see there.
    pub(crate) fn standby(&self) -> Self {
        match self {
            Self::Postgres(database) => Self::Postgres(database.standby()),
            Self::Mariadb(database) => Self::Mariadb(database.replica()),
        }
    }

    /// Lets one that follows go on by itself.
    pub(crate) fn promote(&self) {
        on_each!(self, database => database.promote());
    }

    /// The address of both, this one first.
    pub(crate) fn url_before(&self, other: &Self) -> String {
        let hosts = format!(":{},127.0.0.1:{}/", self.port(), other.port());
        let both = self.url().replace(&format!(":{}/", self.port()), &hosts);
        match self {
            Self::Postgres(_) => format!("{both}?target_session_attrs=read-write"),
            Self::Mariadb(_) => both,
        }
    }

    /// Its address behind that of another host, which has this port here.
    pub(crate) fn url_behind(&self, port: u16) -> String {
        let hosts = format!(":{port},127.0.0.1:{}/", self.port());
        self.url().replace(&format!(":{}/", self.port()), &hosts)
    }

    /// Has a trigger refuse to have rows of messages changed of which that is so.
    pub(crate) fn refuse_changes(&self, when: &str) {
        let trigger = "CREATE TRIGGER picky BEFORE UPDATE ON consumer_messages FOR EACH ROW";
        self.ask(&match self {
            Self::Postgres(_) => format!(
                "CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
                 {trigger} WHEN ({when}) EXECUTE FUNCTION picky()"
            ),
            Self::Mariadb(_) => format!(
                "DELIMITER //\n{trigger} IF {when} THEN
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF //"
            ),
        });
    }

    /// Drops that trigger.
    pub(crate) fn accept_changes(&self) {
        self.ask(match self {
            Self::Postgres(_) => "DROP FUNCTION picky CASCADE",
            Self::Mariadb(_) => "DROP TRIGGER picky",
        });
    }
}

impl From<PgDatabase> for Database {
    fn from(database: PgDatabase) -> Self {
        Self::Postgres(database)
    }
}

impl From<MariaDatabase> for Database {
    fn from(database: MariaDatabase) -> Self {
        Self::Mariadb(database)
    }
}
