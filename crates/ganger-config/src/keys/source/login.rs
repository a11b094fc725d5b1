//! User name and password for a server, under keys of their own: written literally, where a URL wants
//! them percent-encoded.

use crate::keys::secret_file::secret_file;
use crate::keys::shared::ReadContext;
use crate::print;
use crate::reader::Reader;
use crate::value_types::word;

/// Login given by the keys or by the URL.
#[derive(Debug, Clone, Default)]
pub(super) struct Login {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

/// Reads the keys.
pub(super) fn login(t: &mut Reader<'_>, around: ReadContext<'_>) -> Login {
    let username = t.maybe(
        "username",
        word(),
        "User name, not percent-encoded, instead of the URL's; on RabbitMQ `guest` if neither is \
         given.",
    );
    let password = t.maybe(
        "password",
        word(),
        "Password, not percent-encoded, instead of the URL's; preferably from a variable, as in \
         `\"${RABBITMQ_PASSWORD}\"`.",
    );
    let file = secret_file(
        t,
        around,
        "password",
        "password_file",
        "File with the password; relative to the directory of this file.",
    );
    Login {
        username,
        password: password.or(file),
    }
}

impl Login {
    /// Fills in from the URL what the keys leave out.
    pub(super) fn or(self, username: Option<String>, password: Option<String>) -> Self {
        Self {
            username: self.username.or(username),
            password: self.password.or(password),
        }
    }

    /// Records the login for printing, under these keys.
    pub(super) fn print(&self, t: &mut Reader<'_>) {
        let username = self.username.as_ref();
        t.print("username", username.map(|name| print::text(name)));
        let password = self.password.as_ref();
        t.print("password", password.map(|_| print::hidden("password")));
    }
}
