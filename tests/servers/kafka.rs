//! A private Kafka broker: its files, its process, its end. Most are a cluster of one node in KRaft mode;
//! others may join it. One that stores records in the legacy formats needs a ZooKeeper, which is started
//! along with it.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::look_for;
use super::process::{Server, free_port};

/// Any 22 characters will do.
const CLUSTER_ID: &str = "ganger-tests-kafka-001";
/// The password of the file that holds the key of the broker's certificate.
const STORE_PASSWORD: &str = "the-key-of-a-test";

/// The number of a cluster's first node.
const FIRST: i32 = 1;

/// Who may connect to the second listener.
pub(crate) const USER: &str = "alice";
/// The user's password.
pub(crate) const PASSWORD: &str = "in-wonderland";
/// The mechanism that the second listener knows.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";

/// How long a start may take where other work keeps the processors busy; alone it takes 2 s.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long one question to a broker that starts may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The broker. Dropped, its process is killed and its files are removed.
pub(crate) struct Broker {
    dir: tempfile::TempDir,
    plain_port: u16,
    secure_port: u16,
    /// Where that one may move to.
    spare_port: u16,
    /// The first node's, which keeps the cluster's metadata.
    controller_port: u16,
    node: i32,
    process: Mutex<Option<Server>>,
    /// Of a broker that keeps the cluster's metadata there.
    zookeeper: Option<Server>,
}

impl Broker {
    /// Prepares a broker on a ZooKeeper of its own that keeps topics in the format of Kafka 0.10 unless they
    /// are made with another.
    pub(crate) fn prepare_legacy() -> Self {
        let mut broker = Self::unprepared(FIRST, free_port());
        let port = broker.controller_port;
        let data = broker.path("zookeeper");
        let settings = format!(
            "tickTime=500\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n",
            data.display()
        );
        let file = broker.path("zookeeper.properties");
        fs::write(&file, settings).unwrap();
        let log = fs::File::create(broker.path("zookeeper.log")).unwrap();
        broker.zookeeper = Some(Server::start("java", |java| {
            arrange(java, "org.apache.zookeeper.server.ZooKeeperServerMain");
            java.arg(file).stdout(log.try_clone().unwrap()).stderr(log);
        }));
        let (plain, data) = (broker.plain(), broker.path("data"));
        let properties = format!(
            "broker.id={FIRST}\n\
             zookeeper.connect=127.0.0.1:{port}\n\
             zookeeper.connection.timeout.ms={}\n\
             inter.broker.protocol.version=2.8\n\
             log.message.format.version=0.10.2\n\
             listeners=PLAINTEXT://{plain}\n\
             log.dirs={}\n\
             {ONE_NODE}{IN_A_HURRY}",
            READY_WITHIN.as_millis(),
            data.display()
        );
        fs::write(broker.path("server.properties"), properties).unwrap();
        broker
    }

    /// Prepares a broker's files; it does not run yet.
    pub(crate) fn prepare() -> Self {
        Self::prepare_with("")
    }

    /// The same with properties of the test's choosing, a line each.
    pub(crate) fn prepare_with(properties: &str) -> Self {
        Self::make(FIRST, free_port(), properties)
    }

    /// One more of a cluster, by its number.
    pub(crate) fn prepare_beside(first: &Self, node: i32) -> Self {
        Self::make(node, first.controller_port, "")
    }

    fn unprepared(node: i32, controller_port: u16) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("ganger-kafka-")
            .tempdir()
            .unwrap();
        Self {
            dir,
            plain_port: free_port(),
            secure_port: free_port(),
            spare_port: free_port(),
            controller_port,
            node,
            process: Mutex::new(None),
            zookeeper: None,
        }
    }

    fn make(node: i32, controller_port: u16, properties: &str) -> Self {
        let broker = Self::unprepared(node, controller_port);
        broker.make_certificate();
        let properties = broker.properties() + properties;
        fs::write(broker.path("server.properties"), properties).unwrap();
        broker.format();
        broker
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where anyone may connect.
    pub(crate) fn plain(&self) -> String {
        format!("127.0.0.1:{}", self.plain_port)
    }

    /// Where one needs TLS and a password.
    pub(crate) fn secure(&self) -> String {
        format!("127.0.0.1:{}", self.secure_port)
    }

    /// Where that is once it has moved.
    pub(crate) fn spare(&self) -> String {
        format!("127.0.0.1:{}", self.spare_port)
    }

    /// Moves that listener of a broker that does not run.
    pub(crate) fn move_secure(&self) {
        let file = self.path("server.properties");
        let properties = fs::read_to_string(&file).unwrap();
        fs::write(file, properties.replace(&self.secure(), &self.spare())).unwrap();
    }

    /// The certificate to check it by.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.path("broker.pem")
    }

    // -- its files --

    fn make_certificate(&self) {
        let store = self.path("broker.p12");
        let keytool = |args: &[&str]| {
            let mut command = Command::new("keytool");
            command.args(args).arg("-keystore").arg(&store);
            output(command.args(["-alias", "broker", "-storepass", STORE_PASSWORD]))
        };
        let name = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1"];
        let key = ["-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12"];
        keytool(&[&key[..], &name[..]].concat());
        let certificate = keytool(&["-exportcert", "-rfc"]);
        fs::write(self.certificate(), certificate).unwrap();
    }

    fn properties(&self) -> String {
        let controller = format!("127.0.0.1:{}", self.controller_port);
        let (roles, listener) = match self.node {
            FIRST => ("broker,controller", format!(",CONTROLLER://{controller}")),
            _ => ("broker", String::new()),
        };
        let node = self.node;
        let brokers = format!("PLAINTEXT://{},SASL_SSL://{}", self.plain(), self.secure());
        let (data, store) = (self.path("data"), self.path("broker.p12"));
        let (data, store) = (data.display(), store.display());
        let scram = MECHANISM.to_lowercase();
        format!(
            "process.roles={roles}\n\
             node.id={node}\n\
             controller.quorum.voters={FIRST}@{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listeners={brokers}{listener}\n\
             advertised.listeners={brokers}\n\
             inter.broker.listener.name=PLAINTEXT\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT\n\
             sasl.enabled.mechanisms={MECHANISM}\n\
             listener.name.sasl_ssl.{scram}.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             ssl.keystore.location={store}\n\
             ssl.keystore.type=PKCS12\n\
             ssl.keystore.password={STORE_PASSWORD}\n\
             log.dirs={data}\n\
             {ONE_NODE}{IN_A_HURRY}"
        )
    }

    fn format(&self) {
        let user = format!("{MECHANISM}=[name={USER},password={PASSWORD}]");
        let mut java = Command::new("java");
        arrange(&mut java, "kafka.tools.StorageTool");
        java.arg("format").args(["-t", CLUSTER_ID, "-c"]);
        java.arg(self.path("server.properties"));
        output(java.args(["--add-scram", &user]));
    }

    /// Runs one of Kafka's own tools on it, as an operator would.
    pub(crate) fn tool(&self, class: &str, args: &[&str]) {
        let mut java = Command::new("java");
        arrange(&mut java, class);
        output(java.args(["--bootstrap-server", &self.plain()]).args(args));
    }

    /// Inverts the first byte of that text where the broker has it on disk, in a topic's first
    /// partition; done once more it is mended.
    pub(crate) fn damage(&self, topic: &str, text: &str) {
        let log = format!("data/{topic}-0/00000000000000000000.log");
        let log = fs::File::options()
            .read(true)
            .write(true)
            .open(self.path(&log))
            .unwrap();
        let mut all = vec![0; usize::try_from(log.metadata().unwrap().len()).unwrap()];
        log.read_exact_at(&mut all, 0).unwrap();
        // All but its first byte, which may be inverted.
        let rest = &text.as_bytes()[1..];
        let at = all.windows(rest.len()).position(|window| window == rest);
        let at = at.expect("the text on disk") - 1;
        log.write_all_at(&[!all[at]], at.try_into().unwrap())
            .unwrap();
    }

    // -- its process --

    /// Starts it, and does not wait until it is ready.
    pub(crate) fn start(&self) {
        let mut process = self.process.lock().unwrap();
        assert!(process.is_none(), "the broker runs already");
        let log = fs::File::create(self.path("log")).unwrap();
        *process = Some(Server::start("java", |java| {
            arrange(java, "kafka.Kafka");
            java.arg(self.path("server.properties"));
            java.stdout(log.try_clone().unwrap()).stderr(log);
        }));
    }

    /// Waits until it is ready.
    pub(crate) fn is_ready(&self) {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.plain());
        config.set("reconnect.backoff.max.ms", "200");
        let client: BaseConsumer = config.create().unwrap();
        let ready = look_for(READY_WITHIN, || {
            let last_words = self.last_words();
            assert_eq!(last_words, None, "the broker has ended");
            let told = client.fetch_metadata(None, ANSWER_WITHIN).ok()?;
            let mut brokers = told.brokers().iter();
            brokers.any(|broker| broker.id() == self.node).then_some(())
        });
        ready.expect("the broker to be ready");
    }

    /// Its process, while it runs.
    pub(crate) fn pid(&self) -> Pid {
        let process = self.process.lock().unwrap();
        process.as_ref().expect("a broker that runs").pid()
    }

    /// Takes away what a partition of a broker that does not run holds from an offset on, whole
    /// batches of it: as when a replica becomes the leader that had not got so far.
    pub(crate) fn cut_log(&self, topic: &str, partition: i32, from: i64) {
        let log = format!("data/{topic}-{partition}/{:020}.log", 0);
        let log = self.path(&log);
        let bytes = fs::read(&log).unwrap();
        let mut length = 0;
        while let Some((head, _)) = bytes[length..].split_first_chunk::<12>() {
            let (offset, rest) = head.split_first_chunk().unwrap();
            if i64::from_be_bytes(*offset) >= from {
                break;
            }
            let rest = u32::from_be_bytes(rest.try_into().unwrap());
            length += head.len() + usize::try_from(rest).unwrap();
        }
        assert!(length < bytes.len(), "there is nothing from {from} on");
        let log = fs::OpenOptions::new().write(true).open(log).unwrap();
        log.set_len(length.try_into().unwrap()).unwrap();
    }

    /// SIGKILL, and its end.
    pub(crate) fn kill(&self) {
        let process = self.process.lock().unwrap().take();
        process.expect("a broker that runs").end(Signal::SIGKILL);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.lock().unwrap();
        process.as_ref().expect("a broker that runs").signal(signal);
    }

    /// What it has said, if it has ended by itself.
    pub(crate) fn last_words(&self) -> Option<String> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.as_ref().expect("a broker that runs").ended()?;
        Some(fs::read_to_string(self.path("log")).unwrap())
    }
}

const ONE_NODE: &str = "\
offsets.topic.num.partitions=5
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
";

/// What a broker does at leisure, tests wait for.
const IN_A_HURRY: &str = "\
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.backoff.ms=100
log.initial.task.delay.ms=0
log.retention.check.interval.ms=500
";

/// Makes a command of Java's run one of Kafka's classes.
fn arrange(java: &mut Command, class: &str) {
    java.args(["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    java.arg("-cp").arg(libraries().join("*")).arg(class);
}

/// The tool for access rules, which version 4 calls otherwise.
pub(crate) fn acl_command() -> &'static str {
    if is_before_4() {
        "kafka.admin.AclCommand"
    } else {
        "org.apache.kafka.tools.AclCommand"
    }
}

/// Whether the broker is of a version that does not know the newer protocol of groups.
pub(crate) fn is_before_4() -> bool {
    let files = fs::read_dir(libraries()).unwrap();
    let mut names = files.map(|file| file.unwrap().file_name());
    names.any(|name| name.to_string_lossy().starts_with("kafka_2.13-3."))
}

/// Where `tests/run` has put the broker.
fn libraries() -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_KAFKA").map(PathBuf::from);
    let in_target = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        target.with_file_name("kafka").join("libs")
    };
    let libraries = prepared.unwrap_or_else(in_target);
    assert!(
        libraries.is_dir(),
        "no Kafka at {}: run tests/run, which fetches it",
        libraries.display()
    );
    libraries
}

/// Runs a command to its good end and returns what it printed.
fn output(command: &mut Command) -> Vec<u8> {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{command:?}: {ran:?}");
    ran.stdout
}
