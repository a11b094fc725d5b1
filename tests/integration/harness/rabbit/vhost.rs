//! A virtual host of a test's own: no other test's queues, connections or messages are in it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::client::Client;
use crate::servers::rabbit::{Node, binary, of_each_queue};

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
        self.node.totals(&self.name)
    }

    /// How many messages of a queue are in somebody's hands.
    pub(crate) fn in_hand(&self, client: &Client, queue: &str) -> u64 {
        let ready = client.ready(queue).unwrap();
        self.totals()[queue].saturating_sub(ready.into())
    }

    /// The arguments of each queue, as Erlang writes them, and whether it is durable.
    pub(crate) fn queues(&self) -> BTreeMap<String, String> {
        let what = "Name, {amqqueue:is_durable(Q), amqqueue:get_arguments(Q)}";
        let lines = self.node.lines(&of_each_queue(&self.name, "~s=~0p", what));
        let pair = |line: &String| {
            let (name, what) = line.split_once('=').unwrap();
            (name.to_owned(), what.to_owned())
        };
        lines.iter().map(pair).collect()
    }

    /// Its connections that have a name, in order: the name and the port that they come from.
    pub(crate) fn connections(&self) -> Vec<String> {
        let vhost = binary(&self.name);
        let mut lines = self.node.lines(&format!(
            "[lists:flatten(io_lib:format(\"~s ~b\", [Name, Port])) ||
                [{{client_properties, Told}}, {{peer_port, Port}}, {{vhost, {vhost}}}] <-
                    rabbit_networking:connection_info_all([client_properties, peer_port, vhost]),
                {{longstr, Name}} <- [rabbit_misc:table_lookup(Told, <<\"connection_name\">>)]]"
        ));
        lines.sort_unstable();
        lines
    }

    /// Its consumers, in order: queue, prefetch, whether it is active, and its arguments as Erlang
    /// writes them.
    pub(crate) fn consumers(&self) -> Vec<String> {
        let vhost = binary(&self.name);
        let mut lines = self.node.lines(&format!(
            "lists:map(fun(C) ->
                {{resource, _, queue, Name}} = proplists:get_value(queue_name, C),
                [Prefetch, Active, Arguments] = [proplists:get_value(Key, C) ||
                    Key <- [prefetch_count, active, arguments]],
                lists:flatten(io_lib:format(
                    \"~s ~b ~p ~0p\", [Name, Prefetch, Active, Arguments]))
            end, rabbit_amqqueue:consumers_all({vhost}))"
        ));
        lines.sort_unstable();
        lines
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
