//! Logins of browsers: a code that is valid once and for a minute, and the session for which it is
//! exchanged. Both belong to an identity, are stored as hashes only, and end with the daemon.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::caller::Identity;
use ganger_queue::client::unique_name;

/// Time for which a code may be exchanged.
pub(super) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Lifetime of a session.
pub(super) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Time without a request after which a session ends.
const SESSION_IDLE_MAX: Duration = Duration::from_secs(3600);
/// Maximum number of codes, and of sessions; a further one ends the oldest.
const CODES_MAX: usize = 16;
const SESSIONS_MAX: usize = 256;

/// Number of failed logins within a minute after which further logins are refused.
pub(super) const FAILURES_MAX: usize = 10;
const FAILURE_WINDOW: Duration = Duration::from_secs(60);

/// Returns the hash of a secret: comparing hashes does not show how much of a guess was right.
pub(super) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Returns whether a secret has that hash.
pub(super) fn is_of(secret: &str, expected: &[u8; 32]) -> bool {
    hash(secret).ct_eq(expected).into()
}

/// The codes, the sessions and the failed logins. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    codes: Tickets,
    sessions: Tickets,
    /// Times of failed logins, the oldest first.
    failures: VecDeque<Instant>,
}

impl Sessions {
    /// Issues a code.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn issue_code(&self, identity: Identity) -> io::Result<String> {
        let codes = &mut self.held().codes;
        codes.issue(identity, CODE_LIFETIME, CODE_LIFETIME, CODES_MAX)
    }

    /// Exchanges a code for a session; none if the code is unknown, used or too old.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn exchange(&self, code: &str) -> io::Result<Option<String>> {
        let identity = self.held().codes.take(code);
        identity.map(|identity| self.begin(identity)).transpose()
    }

    /// Begins a session.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn begin(&self, identity: Identity) -> io::Result<String> {
        let sessions = &mut self.held().sessions;
        sessions.issue(identity, SESSION_LIFETIME, SESSION_IDLE_MAX, SESSIONS_MAX)
    }

    /// Returns whose session that is, and notes its use.
    pub(super) fn owner(&self, session: &str) -> Option<Identity> {
        self.held().sessions.used(session)
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &str) {
        self.held().sessions.take(session);
    }

    /// Notes a failed login.
    pub(super) fn note_failure(&self) {
        self.held().failures.push_back(Instant::now());
    }

    /// Returns the time until a login is possible again, if too many have failed.
    pub(super) fn refused_for(&self) -> Option<Duration> {
        let failures = &mut self.held().failures;
        let now = Instant::now();
        while failures
            .front()
            .is_some_and(|at| *at + FAILURE_WINDOW <= now)
        {
            failures.pop_front();
        }
        let first = failures.iter().rev().nth(FAILURES_MAX - 1)?;
        Some(*first + FAILURE_WINDOW - now)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Secrets that are valid until a time, the oldest first.
#[derive(Debug, Default)]
struct Tickets(VecDeque<Ticket>);

#[derive(Debug)]
struct Ticket {
    hash: [u8; 32],
    identity: Identity,
    until: Instant,
    idle_max: Duration,
    used: Instant,
}

impl Tickets {
    fn issue(
        &mut self,
        identity: Identity,
        lifetime: Duration,
        idle_max: Duration,
        held_max: usize,
    ) -> io::Result<String> {
        let secret = unique_name()?;
        let now = Instant::now();
        self.0.retain(|ticket| ticket.is_valid(now));
        if self.0.len() == held_max {
            self.0.pop_front();
        }
        self.0.push_back(Ticket {
            hash: hash(&secret),
            identity,
            until: now + lifetime,
            idle_max,
            used: now,
        });
        Ok(secret)
    }

    fn take(&mut self, secret: &str) -> Option<Identity> {
        let position = self.position(secret)?;
        self.0.remove(position).map(|ticket| ticket.identity)
    }

    fn used(&mut self, secret: &str) -> Option<Identity> {
        let position = self.position(secret)?;
        let ticket = self.0.get_mut(position)?;
        ticket.used = Instant::now();
        Some(ticket.identity.clone())
    }

    fn position(&self, secret: &str) -> Option<usize> {
        let (now, given) = (Instant::now(), hash(secret));
        let is_it = |ticket: &Ticket| bool::from(given.ct_eq(&ticket.hash));
        let position = self.0.iter().position(is_it)?;
        self.0[position].is_valid(now).then_some(position)
    }
}

impl Ticket {
    fn is_valid(&self, now: Instant) -> bool {
        now < self.until && now < self.used + self.idle_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Identity = Identity::Socket { uid: 7 };

    #[tokio::test(start_paused = true)]
    async fn a_code_is_good_once_and_for_a_minute() {
        let sessions = Sessions::default();
        let code = sessions.issue_code(MINE).unwrap();
        assert!(sessions.exchange("guessed").unwrap().is_none());
        assert!(sessions.owner(&code).is_none());
        let session = sessions.exchange(&code).unwrap().unwrap();
        assert!(sessions.exchange(&code).unwrap().is_none(), "used");
        assert_eq!(sessions.owner(&session), Some(MINE));
        let late = sessions.issue_code(MINE).unwrap();
        tokio::time::advance(CODE_LIFETIME).await;
        assert!(sessions.exchange(&late).unwrap().is_none(), "too old");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_is_idle_old_or_ended() {
        let sessions = Sessions::default();
        let [idle, busy, ended] = [(); 3].map(|()| sessions.begin(MINE).unwrap());
        sessions.end(&ended);
        assert!(sessions.owner(&ended).is_none());
        for _ in 0..23 {
            tokio::time::advance(SESSION_IDLE_MAX / 2).await;
            assert!(sessions.owner(&busy).is_some());
        }
        assert!(sessions.owner(&idle).is_none(), "idle");
        tokio::time::advance(SESSION_IDLE_MAX / 2).await;
        assert!(sessions.owner(&busy).is_none(), "old");
    }

    #[tokio::test]
    async fn only_so_many_are_held() {
        let sessions = Sessions::default();
        let codes: Vec<String> = (0..=CODES_MAX)
            .map(|_| sessions.issue_code(MINE).unwrap())
            .collect();
        assert!(sessions.exchange(&codes[0]).unwrap().is_none());
        assert!(sessions.exchange(&codes[CODES_MAX]).unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn failed_logins_stop_further_ones_for_a_minute() {
        let sessions = Sessions::default();
        for _ in 0..FAILURES_MAX {
            assert_eq!(sessions.refused_for(), None);
            sessions.note_failure();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(sessions.refused_for(), Some(Duration::from_secs(50)));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(sessions.refused_for(), None);
    }
}
