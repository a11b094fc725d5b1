//! A virtual host of a test's own: no other test's queues, connections or messages are in it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::client::Client;
use super::node::{Node, binary};

/// The virtual host. Dropped, it is removed.
pub(crate) struct Vhost {
    node: Arc<Node>,
    name: String,
}

impl Vhost {
    /// On the shared node.
    pub(crate) fn shared() -> Self {
        Self::at(super::shared())
    }

    pub(crate) fn at(node: Arc<Node>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self::called(node, &name)
    }

    /// With a name that matters.
    pub(crate) fn called(node: Arc<Node>, name: &str) -> Self {
        node.add_vhost(name);
        let name = name.to_owned();
        Self { node, name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        self.node.url(&self.name)
    }

    /// Its address by another port, such as a proxy's.
    pub(crate) fn url_by(&self, port: u16) -> String {
        let own = format!(":{}/", self.node.port());
        self.url().replace(&own, &format!(":{port}/"))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.url())
    }

    /// How many messages each of its queues has, those in somebody's hands included.
    pub(crate) fn totals(&self) -> BTreeMap<String, u64> {
        // A quorum queue's machine is asked itself: what is told otherwise is old. All are looked at
        // twice, and the higher number counts: a message that moves from a queue to one that was
        // looked at before must not be overlooked.
        let total = "fun(Q) ->
            {resource, _, queue, Name} = amqqueue:get_name(Q),
            Total = case amqqueue:get_type(Q) of
                rabbit_quorum_queue ->
                    Query = fun rabbit_fifo:query_messages_total/1,
                    {ok, {_, Number}, _} = ra:leader_query(amqqueue:get_pid(Q), Query),
                    Number;
                _ ->
                    [{messages, Number}] = rabbit_amqqueue:info(Q, [messages]),
                    Number
            end,
            io_lib:format(\"~s=~b \", [Name, Total])
        end";
        let vhost = binary(&self.name);
        let twice =
            format!("[lists:map({total}, rabbit_amqqueue:list({vhost})) || _ <- [first, second]]");
        let said = self.node.eval(&format!("lists:flatten({twice})"));
        let mut totals = BTreeMap::new();
        for word in said.trim_matches('"').split_whitespace() {
            let (queue, number) = word.rsplit_once('=').unwrap();
            let most: &mut u64 = totals.entry(queue.to_owned()).or_default();
            *most = (*most).max(number.parse().unwrap());
        }
        totals
    }
}

impl Deref for Vhost {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Drop for Vhost {
    fn drop(&mut self) {
        // A test that fails may have left the node in any state.
        if !std::thread::panicking() {
            self.node.delete_vhost(&self.name);
        }
    }
}
