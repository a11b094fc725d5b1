//! A private PgBouncer in transaction mode before a private PostgreSQL.

use std::net::{Ipv4Addr, TcpStream};

use super::look;
use super::postgres::Cluster;
use super::process::{Server, free_port};

/// So few sessions that two clients hardly ever get the same one twice.
const SESSIONS: usize = 3;

/// The pooler. Dropped, it is gone.
pub(crate) struct Bouncer {
    port: u16,
    _server: Server,
}

impl Bouncer {
    /// Starts one, and waits until it takes connections.
    pub(crate) fn before(cluster: &Cluster) -> Self {
        let port = free_port();
        let name = |what: &str| format!("bouncer-{port}.{what}");
        let users = cluster.keep(&name("users"), "\"postgres\" \"\"\n");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {SESSIONS}\nmax_client_conn = 200\nserver_round_robin = 1\n",
            cluster.port(),
            users.display()
        );
        let settings = cluster.keep(&name("ini"), &settings);
        let server = cluster.beside("pgbouncer", &name("log"), |command| {
            command.arg(&settings);
        });
        let up = look(|| {
            assert!(server.ended().is_none(), "pgbouncer ended");
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        assert!(up.is_some(), "pgbouncer does not come up");
        Self {
            port,
            _server: server,
        }
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}
