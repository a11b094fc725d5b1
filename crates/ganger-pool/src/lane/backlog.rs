//! Messages given to a lane and not yet in its worker's pipe: they can still be given back unharmed.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use ganger_queue::delivery::{Delivery, Message};

/// Messages waiting for the pipe, oldest first.
#[derive(Debug)]
pub(super) struct Backlog {
    mailbox: mpsc::Receiver<Delivery>,
    waiting: VecDeque<Delivery>,
    /// Number of breaker openings at the last check: messages given to the lane before the last
    /// opening are not begun.
    openings: u64,
    /// Number of the source's claim losses at the last check for void messages.
    losses: u64,
}

impl Backlog {
    /// Creates an empty backlog in front of `mailbox`.
    pub(super) fn new(mailbox: mpsc::Receiver<Delivery>, openings: u64, losses: u64) -> Self {
        Self {
            mailbox,
            waiting: VecDeque::new(),
            openings,
            losses,
        }
    }

    /// Waits for a message and takes in all that are available. `None` if no more can come. Cancel-safe.
    pub(super) async fn arrival(&mut self) -> Option<()> {
        let first = self.mailbox.recv().await?;
        self.waiting.push_back(first);
        self.take_in();
        Some(())
    }

    /// Returns whether no message is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the next message and leaves it in place.
    pub(super) fn first(&self) -> Option<&Delivery> {
        self.waiting.front()
    }

    /// Takes out the next message.
    pub(super) fn pop(&mut self) -> Option<Delivery> {
        self.waiting.pop_front()
    }

    /// Takes out the next message if it is void: another daemon may process it by now.
    pub(super) fn pop_void(&mut self) -> Option<Delivery> {
        self.waiting.pop_front_if(|next| next.is_void())
    }

    /// Takes out the messages that `is_meant` selects.
    pub(super) fn take_meant(&mut self, is_meant: impl Fn(&Message) -> bool) -> Vec<Delivery> {
        self.take(|one| is_meant(&one.message))
    }

    /// Takes out the void messages if `losses`, the number of the source's claim losses, has
    /// changed.
    pub(super) fn take_void(&mut self, losses: u64) -> Vec<Delivery> {
        let are_news = losses != self.losses;
        self.losses = losses;
        match are_news {
            true => self.take(Delivery::is_void),
            false => Vec::new(),
        }
    }

    fn take(&mut self, is_meant: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        self.take_in();
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (meant, rest): (VecDeque<_>, _) = all.partition(is_meant);
        self.waiting = rest;
        meant.into()
    }

    /// Closes the mailbox: the lane is given no more messages.
    pub(super) fn close(&mut self) {
        self.mailbox.close();
    }

    /// Takes out all messages, to be given back, if `openings`, the number of breaker openings, has changed.
    pub(super) fn after(&mut self, openings: u64) -> Option<VecDeque<Delivery>> {
        let opened = openings != self.openings;
        self.openings = openings;
        opened.then(|| self.take_all())
    }

    /// Takes out all messages, to go back.
    pub(super) fn take_all(&mut self) -> VecDeque<Delivery> {
        self.take_in();
        std::mem::take(&mut self.waiting)
    }

    fn take_in(&mut self) {
        while let Ok(next) = self.mailbox.try_recv() {
            self.waiting.push_back(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_queue::delivery::{Claim, History, Message, Outcome, link};

    fn message() -> Message {
        Message {
            queue: "q".into(),
            body: bytes::Bytes::new(),
            headers: Vec::new(),
            correlation_id: String::new(),
            reply_to: None,
            properties: Vec::new(),
            occurrence: None,
        }
    }

    #[tokio::test]
    async fn what_is_not_begun_goes_back_whole_and_in_its_order() {
        let (mut source, mut pool) = link();
        let (give, mailbox) = mpsc::channel(8);
        let mut backlog = Backlog::new(mailbox, 3, 0);
        for token in 0..4 {
            source.deliver(token, message(), History::default());
            let delivery = pool.deliveries.try_recv().unwrap();
            give.try_send(delivery).unwrap();
            if token == 2 {
                backlog.arrival().await.unwrap();
            }
        }
        drop(backlog.pop().unwrap());
        assert!(backlog.after(3).is_none(), "the breaker has not opened");
        let unbegun = backlog.after(4).unwrap();
        assert_eq!(unbegun.len(), 3, "the last was still in the mailbox");
        assert!(backlog.is_empty() && backlog.after(4).is_none());
        drop(unbegun);
        for token in 0..4 {
            let back = source.settlements.recv().await.unwrap();
            assert_eq!(back.token, token);
            assert_eq!(back.outcome, Outcome::Return { suspect: false });
        }
        backlog.close();
        assert!(backlog.arrival().await.is_none());
        assert!(give.is_closed());
    }

    #[test]
    fn what_is_void_is_taken_out_once_that_is_told() {
        let (mut source, mut pool) = link();
        let (give, mailbox) = mpsc::channel(8);
        let mut backlog = Backlog::new(mailbox, 0, 5);
        let (lost, kept) = (Claim::default(), Claim::default());
        for (token, claim) in (0..).zip([&kept, &lost, &kept, &lost]) {
            source.deliver_under(claim, token, message(), History::default());
            give.try_send(pool.deliveries.try_recv().unwrap()).unwrap();
        }
        drop(lost);
        assert!(backlog.take_void(5).is_empty(), "nobody has said so");
        assert_eq!(backlog.take_void(6).len(), 2);
        let back = std::iter::from_fn(|| source.settlements.try_recv().ok());
        assert!(back.map(|settlement| settlement.token).eq([1, 3]));
        assert_eq!(backlog.waiting.len(), 2);
    }
}
