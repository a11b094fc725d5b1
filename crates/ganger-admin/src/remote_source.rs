//! A source of a remote daemon: commands act on it through the daemon's API.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};
use url::form_urlencoded::Serializer;

use super::client::{ClientError, Remote, segment};
use super::dead::{Changed, Chosen, LETTERS_MAX, Letters};
use super::messages::Published;
use ganger_queue::client::json::{MessageJson, duration_text};
use ganger_queue::client::shown::{DeadLetterJson, body};
use ganger_queue::client::{
    Answers, Client, DeadFilter, DeadLetter, Depth, Each, Listed, Page, Partial, QueueClient,
    Reply, RetryTarget, WaitingList,
};
use ganger_queue::delivery::{IfUnsubscribed, Outgoing, Post};
use ganger_queue::fault::SourceFault;

/// Maximum number of ids of dead letters in one request, whose body the daemon limits.
const IDS_MAX: usize = 500;

/// A source of a remote daemon.
#[derive(Debug)]
pub struct RemoteSource {
    remote: Remote,
    runtime: Runtime,
    source: String,
    reply_timeout: Duration,
    /// Reply addresses of expected answers. The daemon creates one of its own for each.
    asked: BTreeSet<String>,
    answers: Answers,
    /// Number of dead letters that stayed at the last attempt to send some back.
    held: usize,
}

impl RemoteSource {
    /// Returns a client of the source called `name` of that daemon, which waits `reply_timeout` for each
    /// answer to a message. Nothing is requested yet.
    ///
    /// # Errors
    /// If the system has no event loop for it.
    pub fn client(
        remote: &Remote,
        name: &str,
        reply_timeout: Duration,
    ) -> Result<Client, SourceFault> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| SourceFault::remote(error.to_string()).of(name))?;
        let source = Self {
            remote: remote.clone().patient(),
            runtime,
            source: name.to_owned(),
            reply_timeout,
            asked: BTreeSet::new(),
            answers: Answers::default(),
            held: 0,
        };
        Ok(Client::new(name, Box::new(source)))
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.runtime.block_on(self.remote.get(path))
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let broken = |error: serde_json::Error| ClientError::Broken(error.to_string());
        let body = serde_json::to_value(body).map_err(broken)?;
        let answer = self.remote.ask(method, path, Some(&body));
        let answer = self.runtime.block_on(answer)?;
        serde_json::from_slice(&answer).map_err(broken)
    }

    /// Returns the path of its dead letters.
    fn dead(&self, below: &str) -> String {
        format!("/v1/dead/{}{below}", segment(&self.source))
    }

    /// Sends one message. Returns the row that already existed, if there was one.
    fn publish(&mut self, post: &Post) -> Result<Option<i64>, Partial> {
        let mut message = post.clone();
        let place = message
            .message
            .reply_to
            .take_if(|place| self.asked.remove(place));
        let mut wishes = Serializer::new(String::new());
        wishes.append_pair("source", &self.source);
        if place.is_some() {
            wishes.append_pair("wait", &duration_text(self.reply_timeout));
        }
        if post.topic == Some(IfUnsubscribed::Drop) {
            wishes.append_pair("drop_unsubscribed", "true");
        }
        let kind = match post.topic {
            None => "queues",
            Some(_) => "topics",
        };
        let queue = segment(&post.message.queue);
        let path = format!("/v1/{kind}/{queue}/messages?{}", wishes.finish());
        let published = self.ask(Method::POST, &path, &MessageJson::from(&message));
        let published: Published = published.map_err(|error| {
            // It was sent, and only its answer did not come.
            let is_sent = place.is_some() && status(&error) == Some(504);
            Partial {
                done: usize::from(is_sent),
                fault: said(&error),
            }
        })?;
        if let Some(reply) = published.reply {
            let reply = Reply::try_from(reply).map_err(SourceFault::remote)?;
            self.answers.push(reply);
        }
        Ok(published.kept)
    }

    /// Reads one dead letter, if it exists.
    fn letter(&self, id: &str) -> Result<Option<DeadLetter>, SourceFault> {
        let path = self.dead(&format!("/letters/{}", segment(id)));
        match self.get::<DeadLetterJson>(&path) {
            Ok(letter) => DeadLetter::try_from(letter)
                .map(Some)
                .map_err(SourceFault::remote),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(said(&error)),
        }
    }

    /// Changes those dead letters, in batches. Returns the number changed, and the number held back.
    fn change(
        &self,
        method: &Method,
        path: &str,
        filter: &DeadFilter,
        way: &RetryTarget,
    ) -> Result<(usize, usize), Partial> {
        let parts: Vec<Option<Vec<String>>> = match &filter.ids {
            None => vec![None],
            Some(ids) => {
                let ids: Vec<String> = ids.iter().cloned().collect();
                ids.chunks(IDS_MAX).map(|ids| Some(ids.to_vec())).collect()
            }
        };
        let (mut changed, mut held) = (0, 0);
        for ids in parts {
            let mut chosen = Chosen {
                all: ids.is_none(),
                ids,
                pool: filter.pool.clone(),
                to: way.to.clone(),
                ..Chosen::default()
            };
            match way.body.as_ref().map(|bytes| body(bytes)) {
                None => {}
                Some(("body", text)) => chosen.body = Some(text),
                Some((_, base64)) => chosen.body_base64 = Some(base64),
            }
            match self.ask::<Changed>(method.clone(), path, &chosen) {
                Ok(done) => {
                    changed += done.changed;
                    held += done.held;
                }
                // Some are not there or held back; it is for whoever asked to say so.
                Err(ClientError::Refused {
                    status: 404 | 409,
                    changed: Some(done),
                    held: stay,
                    ..
                }) => {
                    changed += done;
                    held += stay;
                }
                Err(error) => {
                    let before = match &error {
                        ClientError::Refused { changed, .. } => changed.unwrap_or(0),
                        _ => 0,
                    };
                    return Err(Partial {
                        done: changed + before,
                        fault: said(&error),
                    });
                }
            }
        }
        Ok((changed, held))
    }
}

impl QueueClient for RemoteSource {
    fn check(&mut self) -> Result<Vec<String>, SourceFault> {
        Err(not_offered())
    }

    fn send(&mut self, messages: &[Outgoing]) -> Result<(), Partial> {
        let posts: Vec<Post> = messages.iter().cloned().map(Post::from).collect();
        self.post(&posts).map(drop)
    }

    fn post(&mut self, posts: &[Post]) -> Result<Vec<Option<i64>>, Partial> {
        let (mut kept, mut sent) = (Vec::with_capacity(posts.len()), 0);
        for post in posts {
            let row = self.publish(post).map_err(|partial| Partial {
                done: sent + partial.done,
                ..partial
            })?;
            sent += usize::from(row.is_none());
            kept.push(row);
        }
        Ok(kept)
    }

    fn depth(&mut self, _queue: &str) -> Result<Depth, SourceFault> {
        Err(not_offered())
    }

    fn waiting_list(&mut self, queue: &str, limit: usize) -> Result<WaitingList, SourceFault> {
        let mut wanted = Serializer::new(String::new());
        wanted.append_pair("source", &self.source);
        wanted.append_pair("limit", &limit.to_string());
        let path = format!("/v1/queues/{}/messages?{}", segment(queue), wanted.finish());
        self.get(&path).map_err(|error| said(&error))
    }

    fn reply_to(&mut self, unique: &str) -> Result<String, SourceFault> {
        self.asked.insert(unique.to_owned());
        Ok(unique.to_owned())
    }

    fn take_reply(
        &mut self,
        _queue: &str,
        correlation_id: &str,
    ) -> Result<Option<Reply>, SourceFault> {
        // It came with the confirmation of its message, or never will.
        let reply = self.answers.take(correlation_id);
        let missing =
            || SourceFault::remote(format!("no answer to `{correlation_id}` has arrived"));
        reply.map(Some).ok_or_else(missing)
    }

    fn wait_for_change(&mut self, _timeout: Duration) {}

    fn dead_list(&mut self, page: &Page, each: &mut Each<'_>) -> Result<Listed, SourceFault> {
        if let Some(ids) = &page.filter.ids {
            for id in ids {
                let letter = self.letter(id)?;
                if let Some(letter) = letter.filter(|letter| page.filter.fits(letter))
                    && each(letter).is_break()
                {
                    return Ok(Listed::More);
                }
            }
            return Ok(Listed::All);
        }
        let (mut after, mut left) = (page.after.clone(), page.limit);
        loop {
            let mut wanted = Serializer::new(String::new());
            wanted.append_pair("full", "true");
            wanted.append_pair("limit", &left.clamp(1, LETTERS_MAX).to_string());
            let pairs = [("pool", &page.filter.pool), ("after", &after)];
            for (name, value) in pairs {
                value.iter().for_each(|value| {
                    wanted.append_pair(name, value);
                });
            }
            let path = self.dead(&format!("?{}", wanted.finish()));
            let letters: Letters = match self.get(&path) {
                Ok(letters) => letters,
                Err(error)
                    if after.is_some() && after == page.after && status(&error) == Some(404) =>
                {
                    return Ok(Listed::Lost);
                }
                // There is nothing of a pool that the daemon does not have; it is for whoever asked to say so.
                Err(error)
                    if page.filter.pool.is_some()
                        && after.is_none()
                        && status(&error) == Some(404) =>
                {
                    return Ok(Listed::All);
                }
                Err(error) => return Err(said(&error)),
            };
            for letter in letters.letters {
                let letter = DeadLetter::try_from(letter).map_err(SourceFault::remote)?;
                after = Some(letter.id.clone());
                if left == 0 || each(letter).is_break() {
                    return Ok(Listed::More);
                }
                left -= 1;
            }
            match (letters.more, left) {
                (false, _) => return Ok(Listed::All),
                (true, 0) => return Ok(Listed::More),
                (true, _) => {}
            }
        }
    }

    fn dead_retry(&mut self, filter: &DeadFilter, way: &RetryTarget) -> Result<usize, Partial> {
        let retried = self.change(&Method::POST, &self.dead("/retry"), filter, way);
        let (retried, held) = retried?;
        self.held = held;
        Ok(retried)
    }

    fn dead_held(&mut self, _filter: &DeadFilter) -> Result<usize, SourceFault> {
        Ok(self.held)
    }

    fn dead_drop(&mut self, filter: &DeadFilter) -> Result<usize, Partial> {
        let dropped = self.change(
            &Method::DELETE,
            &self.dead(""),
            filter,
            &RetryTarget::default(),
        );
        dropped.map(|(dropped, _)| dropped)
    }
}

/// Converts an error of the daemon, or of the connection to it.
fn said(error: &ClientError) -> SourceFault {
    SourceFault::remote(error.to_string())
}

fn not_offered() -> SourceFault {
    SourceFault::remote("the admin API does not offer this".to_owned())
}

/// Returns the HTTP status of a refusal.
fn status(error: &ClientError) -> Option<u16> {
    match error {
        ClientError::Refused { status, .. } => Some(*status),
        _ => None,
    }
}
