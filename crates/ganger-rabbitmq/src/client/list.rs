//! Listing: the choice of the dead letters that make up a page. They are handed out in batches, once they are
//! stored in their queue again, so that none is held while they are read. The pass continues to its end
//! behind the page, too, since it rotates the queue.

use std::collections::HashMap;
use std::ops::ControlFlow;

use tokio::sync::mpsc::Sender;

use super::dead_letter_index::{FoundDeadLetter, Item};
use super::rotation::{DeadLetterAction, DeadLetterFate, KEPT_BYTES_MAX, Tally};
use ganger_queue::client::{Listed, Page};
use ganger_queue::dead_letter::{DeadLetter, DeadReply};

/// The dead letters of a page, as they arrive.
pub(super) struct List<'a> {
    page: &'a Page,
    to: Sender<Vec<DeadLetter>>,
    /// True if the dead letter after which the page begins has not arrived yet.
    is_before: bool,
    /// Number of dead letters for which there is room.
    left: usize,
    /// True if there was a dead letter without room on the page.
    more: bool,
    /// Dead letters not handed out yet.
    letters: Vec<DeadLetter>,
    /// Replies whose dead letters have not arrived yet.
    replies: HashMap<String, DeadReply>,
    /// Dead letters whose replies have not arrived yet: the queue was rotated between the two.
    waiting: Vec<DeadLetter>,
}

impl<'a> List<'a> {
    /// Begins a page, to be handed out through `to`.
    pub(super) fn new(page: &'a Page, to: Sender<Vec<DeadLetter>>) -> Self {
        Self {
            page,
            to,
            is_before: page.after.is_some(),
            left: page.limit,
            more: false,
            letters: Vec::new(),
            replies: HashMap::new(),
            waiting: Vec::new(),
        }
    }

    /// Hands out the remaining dead letters, which no longer wait for a reply.
    pub(super) async fn end(mut self) -> Listed {
        self.letters.append(&mut self.waiting);
        self.hand_out().await;
        match (self.is_before, self.more) {
            (true, _) => Listed::Lost,
            (false, true) => Listed::More,
            (false, false) => Listed::All,
        }
    }

    fn take(&mut self, found: FoundDeadLetter) {
        let mut letter = found.letter;
        let reply = self.replies.remove(&letter.id);
        if self.is_before {
            self.is_before = self.page.after.as_ref() != Some(&letter.id);
            return;
        }
        if !self.page.filter.fits(&letter) {
            return;
        }
        if self.left == 0 {
            self.more = true;
            return;
        }
        self.left -= 1;
        if found.has_reply_apart && reply.is_none() {
            self.waiting.push(letter);
            return;
        }
        letter.reply = reply.or(letter.reply);
        self.letters.push(letter);
    }

    fn take_reply(&mut self, id: String, reply: DeadReply) {
        let its = |letter: &mut DeadLetter| letter.id == id;
        if let Some(mut letter) = self.waiting.extract_if(.., its).next() {
            letter.reply = Some(reply);
            self.letters.push(letter);
        } else if self.left > 0 && self.page.filter.names(&id) {
            self.replies.insert(id, reply);
        }
    }

    /// Hands out the dead letters so far.
    async fn hand_out(&mut self) {
        self.bound();
        let letters = std::mem::take(&mut self.letters);
        if !letters.is_empty() && self.to.send(letters).await.is_err() {
            // The receiver wants no more.
            self.left = 0;
        }
    }

    /// Keeps the dead letters that wait for their replies from filling memory: beyond a limit they are shown
    /// without.
    fn bound(&mut self) {
        let replies: usize = self.replies.values().map(|reply| reply.body.len()).sum();
        let letters: usize = self.waiting.iter().map(|letter| letter.body.len()).sum();
        if replies > KEPT_BYTES_MAX {
            self.replies.clear();
        }
        if letters > KEPT_BYTES_MAX {
            self.letters.append(&mut self.waiting);
        }
    }
}

impl DeadLetterAction for List<'_> {
    fn judge(&mut self, item: Item) -> DeadLetterFate {
        match item {
            Item::DeadLetter(found) => self.take(*found),
            Item::Reply(id, reply) => self.take_reply(id, reply),
        }
        DeadLetterFate::Keep
    }

    async fn batch_done(&mut self, _tally: &Tally) -> ControlFlow<()> {
        self.hand_out().await;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;
    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::broker::republish::Original;
    use ganger_queue::client::DeadFilter;

    fn letter(id: &str, has_reply_apart: bool) -> Item {
        let letter = DeadLetter {
            id: id.to_owned(),
            ..DeadLetter::default()
        };
        Item::DeadLetter(Box::new(FoundDeadLetter {
            letter,
            has_reply_apart,
            may_go_back: true,
            original: Original {
                properties: BasicProperties::default(),
                exchange: String::new(),
                routing_key: String::new(),
            },
        }))
    }

    fn reply(id: &str, bytes: usize) -> Item {
        let reply = DeadReply {
            queue: String::new(),
            body: vec![0; bytes].into(),
            headers: Vec::new(),
        };
        Item::Reply(id.to_owned(), reply)
    }

    /// Ids of the dead letters that a page has of these, in batches of two, and whether they have replies.
    async fn listed(after: Option<&str>, limit: usize, items: Vec<Item>) -> (String, Listed) {
        let page = Page {
            after: after.map(ToOwned::to_owned),
            limit,
            ..Page::all(DeadFilter::default())
        };
        let (to, mut letters) = channel(100);
        let mut list = List::new(&page, to);
        for (index, item) in items.into_iter().enumerate() {
            assert!(matches!(list.judge(item), DeadLetterFate::Keep));
            if index % 2 == 1 {
                list.hand_out().await;
            }
        }
        let end = list.end().await;
        let mut told = String::new();
        while let Some(some) = letters.recv().await {
            for letter in some {
                told += &letter.id;
                told += if letter.reply.is_some() { "+ " } else { " " };
            }
        }
        (told, end)
    }

    #[tokio::test]
    async fn a_page_begins_behind_a_letter_and_ends_at_its_limit() {
        let all = || ["a", "b", "c", "d", "e"].map(|id| letter(id, false)).into();
        let table = [
            (None, 9, "a b c d e ", Listed::All),
            (None, 5, "a b c d e ", Listed::All),
            (None, 2, "a b ", Listed::More),
            (Some("b"), 2, "c d ", Listed::More),
            (Some("b"), 3, "c d e ", Listed::All),
            (Some("e"), 3, "", Listed::All),
            (Some("x"), 3, "", Listed::Lost),
            (None, 0, "", Listed::More),
        ];
        for (after, limit, expected, end) in table {
            let told = listed(after, limit, all()).await;
            assert_eq!(told, (expected.to_owned(), end), "{after:?} {limit}");
        }
    }

    #[tokio::test]
    async fn a_reply_finds_its_letter_wherever_the_queue_was_turned_round() {
        let before = || vec![reply("a", 1), letter("a", true), letter("b", false)];
        assert_eq!(listed(None, 9, before()).await.0, "a+ b ");
        let split = || vec![letter("a", true), letter("b", false), reply("a", 1)];
        assert_eq!(listed(None, 9, split()).await.0, "b a+ ");
        let among = vec![reply("b", 1), letter("a", false), letter("b", true)];
        assert_eq!(listed(Some("a"), 9, among).await.0, "b+ ");
        let never = vec![letter("a", true), letter("b", false)];
        assert_eq!(listed(None, 9, never).await.0, "b a ");
    }

    #[tokio::test]
    async fn replies_of_nobody_do_not_fill_memory() {
        let page = Page::all(DeadFilter::default());
        let (to, _letters) = channel(1);
        let mut list = List::new(&page, to);
        for n in 0..10 {
            list.judge(reply(&n.to_string(), KEPT_BYTES_MAX / 4));
            list.hand_out().await;
            assert!(list.replies.len() <= 4);
        }
    }
}
