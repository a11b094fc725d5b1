//! Callers of the API: who a request is from, and what their role is.

use std::fmt;

use ganger_config::model::Role;

/// Proven identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// A user of this machine, on the socket.
    Socket {
        /// The user's id.
        uid: u32,
    },
    /// The holder of `admin.token`, or of the generated token.
    Token,
    /// The holder of one of `admin.tokens`. Another token of that name is another identity.
    NamedToken {
        /// Name of the token.
        name: String,
        /// SHA-256 of the token.
        sha256: [u8; 32],
    },
    /// A user whom the trusted proxy has named.
    Proxied {
        /// Name of the user.
        user: String,
    },
}

/// Caller of a request. It is shown as the author of what the request changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) identity: Identity,
    pub(super) role: Role,
    /// Hash of the session that has proven the identity; none if it was something else.
    pub(super) session: Option<[u8; 32]>,
}

impl Caller {
    /// Returns a caller without a session.
    pub(super) fn new(identity: Identity, role: Role) -> Self {
        Self {
            identity,
            role,
            session: None,
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Identity::Socket { uid } => write!(f, "uid {uid} on the socket"),
            Identity::Token => f.write_str("token"),
            Identity::NamedToken { name, .. } => write!(f, "token {name}"),
            Identity::Proxied { user } => write!(f, "user {user} of the proxy"),
        }
    }
}
