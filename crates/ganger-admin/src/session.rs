//! Logins of browsers: a code that is valid once and for a minute, and the session for which it is
//! exchanged. Both belong to an identity, are stored as hashes only, and end with the daemon.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::caller::Identity;
use ganger_queue::client::unique_name;

/// Time for which a code may be exchanged.
pub(super) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Lifetime of a session.
pub(super) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Time without a request after which a session ends.
const SESSION_IDLE_MAX: Duration = Duration::from_secs(3600);
/// Maximum number of codes, and of sessions, of an identity; a further one ends its oldest.
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
pub(super) struct Sessions {
    held: Arc<Mutex<Held>>,
    /// Changes when a session has ended before its time.
    ends: Arc<watch::Sender<()>>,
}

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
    pub(super) fn issue_code(&self, identity: Identity) -> io::Result<String> {
        let codes = &mut self.held().codes;
        codes.issue(identity, CODE_LIFETIME, CODE_LIFETIME)
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
        let session = sessions.issue(identity, SESSION_LIFETIME, SESSION_IDLE_MAX);
        self.ends.send_replace(());
        session
    }

    /// Returns whose session that is, and notes its use if it is one.
    pub(super) fn owner(&self, session: &str, is_use: bool) -> Option<Identity> {
        self.held().sessions.owner(session, is_use)
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &str) {
        self.held().sessions.take(session);
        self.ends.send_replace(());
    }

    /// Waits until the session with that hash has ended.
    pub(super) async fn ended(&self, session: &[u8; 32]) {
        let mut ends = self.ends.subscribe();
        loop {
            let Some(until) = self.held().sessions.ends(session) else {
                return;
            };
            tokio::select! {
                _ = ends.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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
    ) -> io::Result<String> {
        let secret = unique_name()?;
        let now = Instant::now();
        self.0.retain(|ticket| ticket.is_valid(now));
        let own = |ticket: &Ticket| ticket.identity == identity;
        if self.0.iter().filter(|ticket| own(ticket)).count() == HELD_MAX {
            let oldest = self.0.iter().position(own);
            oldest.and_then(|oldest| self.0.remove(oldest));
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
        let position = self.position(&hash(secret))?;
        self.0.remove(position).map(|ticket| ticket.identity)
    }

    fn owner(&mut self, secret: &str, is_use: bool) -> Option<Identity> {
        let position = self.position(&hash(secret))?;
        let ticket = self.0.get_mut(position)?;
        if is_use {
            ticket.used = Instant::now();
        }
        Some(ticket.identity.clone())
    }

    /// Returns when a ticket ends if it is not used until then; none if it has ended.
    fn ends(&self, hash: &[u8; 32]) -> Option<Instant> {
        self.position(hash).map(|position| self.0[position].ends())
    }

    fn position(&self, hash: &[u8; 32]) -> Option<usize> {
        let is_it = |ticket: &Ticket| bool::from(hash.ct_eq(&ticket.hash));
        let position = self.0.iter().position(is_it)?;
        let is_valid = self.0[position].is_valid(Instant::now());
        is_valid.then_some(position)
    }
}

impl Ticket {
    fn is_valid(&self, now: Instant) -> bool {
        now < self.ends()
    }

    fn ends(&self) -> Instant {
        self.until.min(self.used + self.idle_max)
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
        assert!(sessions.owner(&code, true).is_none());
        let session = sessions.exchange(&code).unwrap().unwrap();
        assert!(sessions.exchange(&code).unwrap().is_none(), "used");
        assert_eq!(sessions.owner(&session, true), Some(MINE));
        let late = sessions.issue_code(MINE).unwrap();
        tokio::time::advance(CODE_LIFETIME).await;
        assert!(sessions.exchange(&late).unwrap().is_none(), "too old");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_is_idle_old_or_ended() {
        let sessions = Sessions::default();
        let [idle, busy, ended] = [(); 3].map(|()| sessions.begin(MINE).unwrap());
        sessions.end(&ended);
        assert!(sessions.owner(&ended, true).is_none());
        for _ in 0..23 {
            tokio::time::advance(SESSION_IDLE_MAX / 2).await;
            assert!(sessions.owner(&busy, true).is_some());
        }
        assert!(sessions.owner(&idle, true).is_none(), "idle");
        tokio::time::advance(SESSION_IDLE_MAX / 2).await;
        assert!(sessions.owner(&busy, true).is_none(), "old");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_only_follows_does_not_keep_its_session() {
        let sessions = Sessions::default();
        let session = sessions.begin(MINE).unwrap();
        tokio::time::advance(SESSION_IDLE_MAX / 2).await;
        assert!(sessions.owner(&session, false).is_some());
        tokio::time::advance(SESSION_IDLE_MAX / 2).await;
        assert!(sessions.owner(&session, false).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_session_is_waited_for() {
        let sessions = Sessions::default();
        let [idle, ended] = [(); 2].map(|()| sessions.begin(MINE).unwrap());
        let begun = Instant::now();
        let (hash_of_ended, own) = (hash(&ended), sessions.clone());
        let waits = tokio::spawn(async move { own.ended(&hash_of_ended).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waits.is_finished());
        sessions.end(&ended);
        waits.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        sessions.owner(&idle, true).unwrap();
        sessions.ended(&hash(&idle)).await;
        let last = Duration::from_secs(1) + SESSION_IDLE_MAX;
        assert_eq!(begun.elapsed().as_secs(), last.as_secs());
    }

    #[tokio::test]
    async fn only_so_many_are_held_of_an_identity() {
        let sessions = Sessions::default();
        let others = sessions.issue_code(Identity::Token).unwrap();
        let codes: Vec<String> = (0..=HELD_MAX)
            .map(|_| sessions.issue_code(MINE).unwrap())
            .collect();
        assert!(sessions.exchange(&codes[0]).unwrap().is_none());
        assert!(sessions.exchange(&codes[HELD_MAX]).unwrap().is_some());
        assert!(sessions.exchange(&others).unwrap().is_some());
    }
}
