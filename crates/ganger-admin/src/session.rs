//! Logins of browsers: a code that is valid once and for a minute, and the session for which it is
//! exchanged. Both are stored as hashes only, and end with the daemon.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use ganger_queue::client::unique_name;

/// Time for which a code may be exchanged.
pub(super) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Lifetime of a session.
pub(super) const SESSION_LIFETIME: Duration = Duration::from_secs(3600);
/// Maximum number of codes, and of sessions; a further one ends the oldest.
const HELD_MAX: usize = 16;

/// Returns the hash of a secret: comparing hashes does not show how much of a guess was right.
pub(super) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Returns whether a secret has that hash.
pub(super) fn is_of(secret: &str, expected: &[u8; 32]) -> bool {
    hash(secret).ct_eq(expected).into()
}

/// The codes and the sessions. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    codes: Tickets,
    sessions: Tickets,
}

impl Sessions {
    /// Issues a code.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn issue_code(&self) -> io::Result<String> {
        self.held().codes.issue(CODE_LIFETIME)
    }

    /// Exchanges a code for a session; none if the code is unknown, used or too old.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn exchange(&self, code: &str) -> io::Result<Option<String>> {
        let mut held = self.held();
        match held.codes.take(code) {
            true => held.sessions.issue(SESSION_LIFETIME).map(Some),
            false => Ok(None),
        }
    }

    /// Returns whether there is such a session.
    pub(super) fn holds(&self, session: &str) -> bool {
        self.held().sessions.position(session).is_some()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Secrets that are valid until a time, the oldest first.
#[derive(Debug, Default)]
struct Tickets(VecDeque<([u8; 32], Instant)>);

impl Tickets {
    fn issue(&mut self, lifetime: Duration) -> io::Result<String> {
        let secret = unique_name()?;
        if self.0.len() == HELD_MAX {
            self.0.pop_front();
        }
        self.0.push_back((hash(&secret), Instant::now() + lifetime));
        Ok(secret)
    }

    fn take(&mut self, secret: &str) -> bool {
        let position = self.position(secret);
        position
            .and_then(|position| self.0.remove(position))
            .is_some()
    }

    fn position(&self, secret: &str) -> Option<usize> {
        let now = Instant::now();
        let is_good = |(hash, until): &([u8; 32], Instant)| *until > now && is_of(secret, hash);
        self.0.iter().position(is_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_code_is_good_once_and_for_a_minute() {
        let sessions = Sessions::default();
        let code = sessions.issue_code().unwrap();
        assert!(sessions.exchange("guessed").unwrap().is_none());
        assert!(!sessions.holds(&code));
        let session = sessions.exchange(&code).unwrap().unwrap();
        assert!(sessions.exchange(&code).unwrap().is_none(), "used");
        assert!(sessions.holds(&session));
        let late = sessions.issue_code().unwrap();
        tokio::time::advance(CODE_LIFETIME).await;
        assert!(sessions.exchange(&late).unwrap().is_none(), "too old");
        tokio::time::advance(SESSION_LIFETIME).await;
        assert!(!sessions.holds(&session), "over");
    }

    #[tokio::test]
    async fn only_so_many_are_held() {
        let sessions = Sessions::default();
        let codes: Vec<String> = (0..=HELD_MAX)
            .map(|_| sessions.issue_code().unwrap())
            .collect();
        assert!(sessions.exchange(&codes[0]).unwrap().is_none());
        assert!(sessions.exchange(&codes[HELD_MAX]).unwrap().is_some());
    }
}
