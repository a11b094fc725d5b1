//! Tokens and headers that prove an identity. They are compared with the configuration in effect at each request, so
//! that a reload revokes what it removes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use tokio::time::sleep;

use super::answer::Problem;
use super::browser::Site;
use super::caller::{Caller, Identity};
use super::session::{hash, is_of};
use ganger_config::model::{Config, NamedToken, ProxyAuth, Role, Secret};
use ganger_pool::overview::Overview;

/// Interval at which an open stream is checked for a token that has expired.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Maximum length of a user's name, in characters.
const USER_CHARS_MAX: usize = 128;

/// Token of a daemon without a name, and its origin.
#[derive(Debug, Clone)]
pub(super) enum Token {
    /// From the configuration.
    Configured(Secret),
    /// Generated at the start, for as long as no token is configured; none if that failed.
    Made(Option<Secret>),
}

/// The accepted credentials. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    /// Hash of the token without a name.
    token: Option<[u8; 32]>,
    is_made: bool,
    overview: Overview,
}

impl Credentials {
    pub(super) fn new(token: &Token, overview: Overview) -> Self {
        let (secret, is_made) = match token {
            Token::Configured(secret) => (Some(secret), false),
            Token::Made(secret) => (secret.as_ref(), true),
        };
        Self {
            token: secret.map(|secret| hash(secret.expose())),
            is_made,
            overview,
        }
    }

    /// Returns whether the configuration has a token.
    pub(super) fn are_configured(&self) -> bool {
        !self.is_made || !self.config().admin.tokens.is_empty()
    }

    /// Returns the holder of a token; none if the token is unknown.
    ///
    /// # Errors
    /// If the token has expired.
    pub(super) fn of_token(&self, token: &str) -> Result<Option<Caller>, Problem> {
        let config = self.config();
        let mut named = config.admin.tokens.iter();
        if let Some(found) = named.find(|named| is_of(token, &named.sha256)) {
            return with_token(found).map(Some);
        }
        let identity = Identity::Token;
        let is_own = self.token.is_some_and(|own| is_of(token, &own));
        let role = self.role(&identity).filter(|_| is_own);
        Ok(role.map(|role| Caller::new(identity, role)))
    }

    /// Returns the role that the configuration gives now to who has logged in before; none if it admits them no
    /// longer.
    pub(super) fn role(&self, identity: &Identity) -> Option<Role> {
        match identity {
            Identity::Socket { .. } => Some(Role::Admin),
            Identity::Token => (!self.is_made || !self.are_configured()).then_some(Role::Admin),
            Identity::NamedToken { name, sha256 } => {
                let config = self.config();
                let mut named = config.admin.tokens.iter();
                let found = named.find(|named| named.name == *name && named.sha256 == *sha256)?;
                with_token(found).ok().map(|caller| caller.role)
            }
            // It is the header of each request that has theirs.
            Identity::Proxied { .. } => {
                let config = self.config();
                config.admin.proxy_auth.as_ref().map(|proxy| proxy.role)
            }
        }
    }

    /// Waits until the configuration no longer admits who was admitted before.
    pub(super) async fn revoked(&self, identity: &Identity) {
        let mut config = self.overview.watch_config();
        while self.role(identity).is_some() {
            tokio::select! {
                changed = config.changed() => if changed.is_err() { return },
                () = sleep(CHECK_EVERY) => {}
            }
        }
    }

    /// Returns the user whom the trusted proxy names; none if the request is not the proxy's, or names nobody.
    ///
    /// # Errors
    /// If a header is ambiguous or names no role, or the host is not that of `admin.public_url`.
    pub(super) fn of_proxy(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, Problem> {
        let config = self.config();
        let is_from = |proxy: &&ProxyAuth| {
            let peer = peer.to_canonical();
            proxy.from.iter().any(|network| network.contains(&peer))
        };
        let Some(proxy) = config.admin.proxy_auth.as_ref().filter(is_from) else {
            return Ok(None);
        };
        let Some(user) = only_value(headers, &proxy.header)? else {
            return Ok(None);
        };
        let public_url = config.admin.public_origin();
        Site::new(headers, public_url).check_proxied()?;
        let user = user.chars().take(USER_CHARS_MAX).collect();
        let role = match &proxy.role_header {
            Some(header) => only_value(headers, header)?
                .map(|role| Role::named(role).ok_or_else(|| no_role(header, role)))
                .transpose()?,
            None => None,
        };
        let role = role.unwrap_or(proxy.role);
        Ok(Some(Caller::new(Identity::Proxied { user }, role)))
    }

    /// Returns the configuration in effect.
    pub(super) fn config(&self) -> Arc<Config> {
        self.overview.config()
    }
}

/// Returns the holder of a token, unless it has expired.
fn with_token(token: &NamedToken) -> Result<Caller, Problem> {
    let NamedToken { name, sha256, .. } = token;
    if let Some(expires) = token.expires.filter(|at| *at <= Timestamp::now()) {
        let why = format!("token {name} has expired, at {expires}");
        return Err(Problem::new(StatusCode::UNAUTHORIZED, why));
    }
    let identity = Identity::NamedToken {
        name: name.clone(),
        sha256: *sha256,
    };
    Ok(Caller::new(identity, token.role))
}

/// Returns the value of a header; none if it is missing or empty. If there are several, a client may have sent one of
/// them.
fn only_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        let why = format!("{name} is given twice: the proxy must replace what a client sends");
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    let value = value.map(|value| {
        let text = std::str::from_utf8(value.as_bytes());
        let why = format!("{name} is not text");
        text.map_err(|_| Problem::new(StatusCode::FORBIDDEN, why))
    });
    let value = value.transpose()?.map(str::trim);
    Ok(value.filter(|value| !value.is_empty()))
}

fn no_role(header: &str, given: &str) -> Problem {
    let given: String = given.chars().take(40).collect();
    let why = format!(
        "{header} must be viewer, operator or admin: `{}`",
        given.escape_debug()
    );
    Problem::new(StatusCode::FORBIDDEN, why)
}
