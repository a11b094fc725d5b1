//! Kafka as the tests need it: a private broker, and a producer's, a consumer's and an operator's
//! view of it through plain librdkafka, nothing of ganger's own code.

mod group;
mod records;
mod topics;
mod workspace;

pub(crate) use crate::servers::kafka::{MECHANISM, PASSWORD, USER, is_before_4};
pub(crate) use group::{Commit, Group, Member};
pub(crate) use records::{NewRecord, Stored};
pub(crate) use workspace::{KafkaSite, Plan, in_trouble, is_draining, is_well};

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, FromClientConfig};
use rdkafka::error::KafkaResult;

use crate::servers::kafka::{Broker, acl_command};

/// How long one request to a broker that runs may take.
const REQUEST: Duration = super::DEADLINE;

/// How long a broker that comes back, or a daemon that follows it, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The broker for tests that leave it in peace.
static SHARED: Mutex<Option<Arc<Kafka>>> = Mutex::new(None);

/// A broker that is up, unless a test takes it down.
pub(crate) struct Kafka {
    broker: Broker,
    admin: AdminClient<DefaultClientContext>,
}

impl Kafka {
    /// The broker that all undemanding tests of a run share. It is started for the first of them.
    pub(crate) fn shared() -> Arc<Self> {
        let mut shared = SHARED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(shared.get_or_insert_with(Self::own))
    }

    /// A broker of the test's own, for any mischief.
    pub(crate) fn own() -> Arc<Self> {
        Self::own_with("")
    }

    /// The same with properties of the broker, a line each.
    pub(crate) fn own_with(properties: &str) -> Arc<Self> {
        Self::up(Broker::prepare_with(properties))
    }

    /// A broker of the test's own that keeps topics in the formats before Kafka 0.11.
    pub(crate) fn legacy() -> Arc<Self> {
        Self::up(Broker::prepare_legacy())
    }

    /// One more of this one's cluster.
    pub(crate) fn beside(&self, node: i32) -> Arc<Self> {
        Self::up(Broker::prepare_beside(&self.broker, node))
    }

    fn up(broker: Broker) -> Arc<Self> {
        broker.start();
        broker.is_ready();
        let admin = AdminClient::from_config(&config(&broker.plain())).unwrap();
        Arc::new(Self { broker, admin })
    }

    // -- where it is --

    /// Its address, for anyone.
    pub(crate) fn address(&self) -> String {
        self.broker.plain()
    }

    /// Its address for those with TLS and a password.
    pub(crate) fn secure_address(&self) -> String {
        self.broker.secure()
    }

    /// Where that is once it has moved.
    pub(crate) fn spare_address(&self) -> String {
        self.broker.spare()
    }

    /// The certificate by which it is known there.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.broker.certificate()
    }

    fn client<T: FromClientConfig>(&self, properties: &[(&str, &str)]) -> T {
        self.config(properties).create().unwrap()
    }

    fn config(&self, properties: &[(&str, &str)]) -> ClientConfig {
        let mut config = config(&self.address());
        for (name, value) in properties {
            config.set(*name, *value);
        }
        config
    }

    // -- what an operator does to it --

    /// Gives the user of the second listener another password.
    pub(crate) fn change_password(&self, password: &str) {
        let user = format!("{MECHANISM}=[password={password}]");
        let entity = ["--entity-type", "users", "--entity-name", USER];
        let change = ["--alter", "--add-config", &user];
        self.broker.tool(
            "kafka.admin.ConfigCommand",
            &[entity.as_slice(), &change].concat(),
        );
    }

    /// Changes a setting of a topic.
    pub(crate) fn set_topic(&self, topic: &str, setting: &str) {
        let entity = ["--entity-type", "topics", "--entity-name", topic];
        let change = ["--alter", "--add-config", setting];
        self.broker.tool(
            "kafka.admin.ConfigCommand",
            &[entity.as_slice(), &change].concat(),
        );
    }

    /// Damages a record of a topic's first partition on the disk, or mends it.
    pub(crate) fn damage(&self, topic: &str, text: &str) {
        self.broker.damage(topic, text);
    }

    /// Denies that user an operation, as `--operation Read --topic t` says it, or no longer. Nor may
    /// anyone do anything else with it meanwhile.
    pub(crate) fn deny(&self, what: &[&str], is_denied: bool) {
        self.rule("--deny-principal", what, is_denied);
    }

    /// Allows that user nothing but that, or everything again.
    pub(crate) fn allow_only(&self, what: &[&str], is_bounded: bool) {
        self.rule("--allow-principal", what, is_bounded);
    }

    fn rule(&self, kind: &str, what: &[&str], is_set: bool) {
        let principal = format!("User:{USER}");
        let who: &[&str] = &[kind, &principal];
        let how = if is_set {
            &["--add"][..]
        } else {
            &["--remove", "--force"]
        };
        self.broker.tool(acl_command(), &[how, who, what].concat());
    }

    // -- its life --

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        self.broker.kill();
    }

    /// Takes away the end of a partition of one that was killed.
    pub(crate) fn cut_log(&self, topic: &str, partition: i32, from: i64) {
        self.broker.cut_log(topic, partition, from);
    }

    /// Has one that was killed come back elsewhere for those with TLS and a password.
    pub(crate) fn move_secure(&self) {
        self.broker.move_secure();
    }

    /// Waits until it answers.
    pub(crate) fn is_ready(&self) {
        self.broker.is_ready();
    }

    /// Starts one that was killed, with all that it had on disk, and does not wait for it.
    pub(crate) fn start_again(&self) {
        self.broker.start();
    }

    /// SIGSTOP and SIGCONT.
    pub(crate) fn signal(&self, signal: Signal) {
        self.broker.signal(signal);
    }
}

/// Ends the shared broker, if any test has started it. To be called when all tests are over.
pub(crate) fn stop_shared() {
    let shared = SHARED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .take();
    drop(shared);
}

/// Properties of a broker that knows what each user may do: anyone all that nobody has denied.
pub(crate) const WITH_ACLS: &str = "\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
";

fn config(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address);
    // One that was down is looked for again at once.
    config.set("reconnect.backoff.max.ms", "200");
    config
}

/// What a broker answers that may be starting, or looking for a coordinator or a leader.
fn at_last<T>(ask: impl Fn() -> KafkaResult<T>) -> T {
    let mut last = None;
    let answer = super::look_for(PATIENCE, || match ask() {
        Ok(answer) => Some(answer),
        Err(error) => {
            last = Some(error);
            None
        }
    });
    answer.unwrap_or_else(|| panic!("asking the broker: {last:?}"))
}
