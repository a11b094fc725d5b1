//! Which of both the tests' server is, MariaDB or MySQL, of which release, and what is different between
//! them: where its programs are, how its files are made, what it is set to, how one follows another.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::home::Home;

/// A directory `bin` with the programs of another release than that of this system, or of MySQL.
const PROGRAMS: &str = "GANGER_TEST_MYSQL";
/// Where Debian has them; the server is not on everybody's path.
const DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/bin"];

/// What both know by the same names. A killed server keeps what it has committed all the same: it is the
/// machine's end that would take it, and that is not tested. It keeps a log for others to follow, as in
/// earnest, lets who may do everything in a database make triggers there, and runs their events, as MySQL
/// does by itself.
const SETTINGS: &[&str] = &[
    "bind-address=127.0.0.1",
    "skip-name-resolve",
    "max-connections=400",
    "innodb-flush-log-at-trx-commit=2",
    "innodb-flush-method=nosync",
    "innodb-buffer-pool-size=64M",
    "log-bin=binlog",
    "log-bin-trust-function-creators=ON",
    "event-scheduler=ON",
];
/// TLS is only where a test gives it a certificate: MariaDB has one of its own from 11.4 on.
const SETTINGS_OF_MARIADB: &[&str] = &["skip-ssl"];
/// What MySQL does not do by itself as MariaDB does, and no certificate of its own either. Without TLS a password goes to it by the RSA key that
/// it has made for that.
const SETTINGS_OF_MYSQL: &[&str] = &[
    "max-allowed-packet=16M",
    "sync-binlog=0",
    "mysqlx=OFF",
    "auto-generate-certs=OFF",
];
/// Of its files, which are made as small as they may be.
const SIZES: &str = "--innodb-log-file-size=32M";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Make {
    Mariadb,
    Mysql,
}

/// What the tests run on.
#[derive(Debug)]
pub(super) struct Release {
    make: Make,
    /// Where its programs are, if not where the system has them.
    programs: Option<PathBuf>,
}

impl Release {
    /// The one that all servers are of.
    pub(super) fn of_the_tests() -> &'static Self {
        static RELEASE: OnceLock<Release> = OnceLock::new();
        RELEASE.get_or_init(|| {
            let programs = std::env::var_os(PROGRAMS).map(PathBuf::from);
            let has = |name: &str| programs.as_ref().is_some_and(|dir| dir.join(name).exists());
            let make = match has("mysqld") && !has("mariadbd") {
                true => Make::Mysql,
                false => Make::Mariadb,
            };
            Self { make, programs }
        })
    }

    pub(super) fn is_mysql(&self) -> bool {
        self.make == Make::Mysql
    }

    /// One of its programs. Those for administrators MariaDB has for both.
    fn program(&self, name: &str) -> PathBuf {
        let given = self.programs.iter().cloned();
        let usual = DIRECTORIES.iter().map(PathBuf::from);
        given
            .chain(usual)
            .map(|directory| directory.join(name))
            .find(|program| Path::exists(program))
            .unwrap_or_else(|| panic!("no {name}: run tests/run, which installs it"))
    }

    pub(super) fn server(&self) -> PathBuf {
        self.program(match self.make {
            Make::Mariadb => "mariadbd",
            Make::Mysql => "mysqld",
        })
    }

    /// An administrator's.
    pub(super) fn client(&self) -> PathBuf {
        self.program("mariadb")
    }

    /// What it finds its messages and tables by.
    fn base(&self) -> Vec<String> {
        let base = self.programs.as_deref().and_then(Path::parent);
        let options = base.map(|base| {
            let base = base.display();
            [
                format!("--basedir={base}"),
                format!("--lc-messages-dir={base}/share"),
            ]
        });
        options.into_iter().flatten().collect()
    }

    /// What makes its files, with an administrator who needs no password.
    pub(super) fn install(&self, home: &Home) -> Command {
        let mut install = match self.make {
            Make::Mariadb => {
                let mut install = home.command(self.program("mariadb-install-db"));
                install.args(["--no-defaults", "--skip-test-db"]);
                install.arg("--auth-root-authentication-method=normal");
                install
            }
            Make::Mysql => {
                let mut install = home.command(self.server());
                install.args(["--no-defaults", "--initialize-insecure", "--skip-log-bin"]);
                install.arg("--auto-generate-certs=OFF");
                // The administrator's client knows no other way; all others come the server's own.
                install.arg("--default-authentication-plugin=mysql_native_password");
                install
            }
        };
        install.arg(SIZES).args(self.base());
        install
    }

    /// What each server is started with.
    pub(super) fn options(&self) -> Vec<String> {
        let own = match self.make {
            Make::Mariadb => SETTINGS_OF_MARIADB,
            Make::Mysql => SETTINGS_OF_MYSQL,
        };
        let settings = SETTINGS.iter().chain(own);
        let mut options: Vec<String> = settings.map(|setting| format!("--{setting}")).collect();
        options.push(SIZES.to_owned());
        options.extend(self.base());
        options
    }

    /// Has a server follow the one at that port, as that user, from the first thing that it ever did.
    pub(super) fn follow(&self, port: u16, user: &str, password: &str) -> String {
        let how = match self.make {
            // From 11.4 on a follower wants TLS unless it is told otherwise.
            Make::Mariadb => "master_use_gtid = slave_pos, master_ssl = 0",
            Make::Mysql => {
                "master_log_file = 'binlog.000001', master_log_pos = 4, get_master_public_key = 1"
            }
        };
        let follow = format!(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = '{user}',
             master_password = '{password}', master_connect_retry = 1, {how};
             START SLAVE"
        );
        match self.waits_for_followers() {
            true => format!("SET GLOBAL rpl_semi_sync_slave_enabled = ON; {follow}"),
            false => follow,
        }
    }

    /// Whether a server can commit nothing before who follows has it. MySQL can, by a plugin; the release
    /// that Maven has comes without plugins.
    pub(super) fn waits_for_followers(&self) -> bool {
        self.make == Make::Mariadb
    }
}
