//! A private RabbitMQ server: started, stopped, killed, asked. Nothing here knows a daemon.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::{Connection, ConnectionProperties};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::look_for;
use super::process::{Server, free_port};

/// The server itself, not the wrapper that changes the user.
const PROGRAM: &str = "usr/lib/rabbitmq/bin/rabbitmq-server";
/// A directory with another release of the system, to run the programs in: so a newer broker is
/// tested beside the one that this system has. Its /tmp must be ours.
const ROOT: &str = "GANGER_TEST_RABBITMQ_ROOT";
/// How its control programs prove that they may.
const COOKIE: &str = "ganger-tests";
/// Waiting in a busy loop is for machines of their own. The rest makes it exit with its stdin shut.
const VM_FLAGS: &str = "-noinput +sbwt none +sbwtdcpu none +sbwtdio none";

/// How long it may take to come up: it reads what it has stored, on a machine that is busy.
const STARTS_WITHIN: Duration = Duration::from_mins(2);
/// How long it may take to let one in once it listens; then it is tried again.
const VISIT_WITHIN: Duration = Duration::from_secs(5);
/// How many lines of its logs are shown if it does not.
const LAST_WORDS: usize = 60;

/// The server and its directory. Dropped, both are gone.
pub(crate) struct Node {
    name: String,
    dir: tempfile::TempDir,
    port: u16,
    tls_port: u16,
    dist_port: u16,
    epmd_port: u16,
    /// Erlang's own name service, which a node would leave behind.
    epmd: Arc<Server>,
    vm: Mutex<Option<Server>>,
}

impl Node {
    /// Starts one, with TLS settings of the configuration file beside the usual, and waits until it
    /// takes connections.
    pub(crate) fn start(tls: &str) -> Self {
        let node = Self::prepared(None);
        let tls_listener = match tls {
            "" => "listeners.ssl = none".to_owned(),
            _ => format!("listeners.ssl.1 = 127.0.0.1:{}\n{tls}", node.tls_port),
        };
        node.write_files(&tls_listener);
        node.start_again();
        node
    }

    /// Starts another one, which joins this one's cluster.
    pub(crate) fn join(&self) -> Self {
        let node = Self::prepared(Some(self));
        let (first, second) = (&self.name, &node.name);
        node.write_files(&format!(
            "listeners.ssl = none\n\
             cluster_formation.peer_discovery_backend = classic_config\n\
             cluster_formation.classic_config.nodes.1 = {first}\n\
             cluster_formation.classic_config.nodes.2 = {second}"
        ));
        let before = self.running();
        node.start_again();
        // That one has come up is news to the others a moment later.
        let joined = look_for(STARTS_WITHIN, || (self.running() > before).then_some(()));
        assert!(joined.is_some(), "it has not joined: {}", node.last_words());
        node
    }

    /// How many nodes of its cluster it knows to run.
    fn running(&self) -> usize {
        let running = self.eval("length(rabbit_nodes:all_running())");
        running.parse().unwrap()
    }

    /// One that is not started, where that other one finds it.
    fn prepared(beside: Option<&Self>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let program = root().unwrap_or_else(|| "/".into()).join(PROGRAM);
        assert!(
            program.exists(),
            "no {}: run tests/run, which installs it",
            program.display()
        );
        let dir = tempfile::Builder::new().prefix("ganger-rabbit-").tempdir();
        let dir = dir.unwrap();
        let epmd_port = beside.map_or_else(free_port, |other| other.epmd_port);
        let epmd = beside.map(|other| Arc::clone(&other.epmd));
        Self {
            name: format!("ganger{}@localhost", NEXT.fetch_add(1, Ordering::Relaxed)),
            port: free_port(),
            tls_port: free_port(),
            dist_port: free_port(),
            epmd_port,
            epmd: epmd
                .unwrap_or_else(|| Arc::new(start_epmd(epmd_port, &dir.path().join("epmd.log")))),
            vm: Mutex::new(None),
            dir,
        }
    }

    fn write_files(&self, settings: &str) {
        let config = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nloopback_users.guest = true\n{settings}\n",
            self.port
        );
        fs::write(self.path("rabbitmq.conf"), config).unwrap();
        fs::write(self.path("plugins"), "[].").unwrap();
        let cookie = self.path(".erlang.cookie");
        fs::write(&cookie, COOKIE).unwrap();
        fs::set_permissions(cookie, Permissions::from_mode(0o400)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    // -- its life --

    /// Starts it in the same place with what it has stored, and waits until it takes connections.
    pub(crate) fn start_again(&self) {
        let log = File::create(self.path("out.log")).unwrap();
        let vm = start(&format!("/{PROGRAM}"), |command| {
            self.environment(command, log)
        });
        let up = look_for(STARTS_WITHIN, || {
            assert!(vm.ended().is_none(), "it ended: {}", self.last_words());
            let address = (Ipv4Addr::LOCALHOST, self.port);
            TcpStream::connect(address).ok()?;
            self.lets_us_in().then_some(())
        });
        assert!(up.is_some(), "it does not come up: {}", self.last_words());
        *self.vm() = Some(vm);
    }

    fn lets_us_in(&self) -> bool {
        let visit = async {
            let options = ConnectionProperties::default();
            let url = format!("{}?frame_max=1048576", self.url("/"));
            let connection = Connection::connect(&url, options).await?;
            connection.close(200, "done".into()).await
        };
        let in_time = async { tokio::time::timeout(VISIT_WITHIN, visit).await };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let visited = runtime.enable_all().build().unwrap().block_on(in_time);
        matches!(visited, Ok(Ok(())))
    }

    fn environment(&self, command: &mut Command, log: File) {
        command
            .env("HOME", self.dir.path())
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODENAME", &self.name)
            .env("RABBITMQ_DIST_PORT", self.dist_port.to_string())
            .env("RABBITMQ_MNESIA_BASE", self.path("data"))
            .env("RABBITMQ_LOG_BASE", self.path("log"))
            .env("RABBITMQ_CONFIG_FILE", self.path("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", self.path("plugins"))
            .env("RABBITMQ_PID_FILE", self.path("pid"))
            // Makes the script become the Erlang machine instead of starting it.
            .env("RABBITMQ_ALLOW_INPUT", "yes")
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", VM_FLAGS)
            .current_dir(self.dir.path())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
    }

    /// The end of what it has said.
    fn last_words(&self) -> String {
        let name = format!("log/{}.log", self.name);
        let logs = ["out.log", &name].map(|name| fs::read_to_string(self.path(name)));
        let logs: Vec<String> = logs.into_iter().flatten().collect();
        let lines: Vec<&str> = logs.iter().flat_map(|log| log.lines()).collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }

    fn vm(&self) -> MutexGuard<'_, Option<Server>> {
        self.vm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops it as an operator would.
    pub(crate) fn stop(&self) {
        self.end(Signal::SIGTERM);
    }

    /// `kill -9`.
    pub(crate) fn kill(&self) {
        // It writes which quorum queues there are some seconds after their declaration; killed
        // before that, it loses them with all that they hold. That is not what is tested.
        self.eval("[ok = dets:sync(Table) || Table <- dets:all()]");
        self.end(Signal::SIGKILL);
    }

    fn end(&self, signal: Signal) {
        self.vm().take().unwrap().end(signal);
    }

    /// Lets it stand still, its connections open.
    pub(crate) fn freeze(&self) {
        self.vm().as_ref().unwrap().signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.vm().as_ref().unwrap().signal(Signal::SIGCONT);
    }

    // -- what it is asked --

    /// Its process, while it runs.
    pub(crate) fn pid(&self) -> Pid {
        self.vm().as_ref().unwrap().pid()
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where they connect with TLS, if it was started with that.
    pub(crate) fn tls_port(&self) -> u16 {
        self.tls_port
    }

    /// The address of a virtual host whose name needs no escape but for a slash.
    pub(crate) fn url(&self, vhost: &str) -> String {
        let vhost = vhost.replace('/', "%2f");
        format!("amqp://guest:guest@127.0.0.1:{}/{vhost}", self.port)
    }

    /// Lets it work out an Erlang expression; what comes of it, as Erlang writes it.
    pub(crate) fn eval(&self, expression: &str) -> String {
        // Two that call at the same time must not have the same name.
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let caller = format!("caller{}", CALLS.fetch_add(1, Ordering::Relaxed));
        let mut call = command("erl_call");
        let mut call = call
            .args(["-n", &self.name, "-c", COOKIE, "-h", &caller, "-e"])
            .env("HOME", self.dir.path())
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = call.stdin.take().unwrap();
        writeln!(input, "{expression}.").unwrap();
        drop(input);
        let said = call.wait_with_output().unwrap();
        let out = String::from_utf8(said.stdout).unwrap();
        let value = out.trim().strip_prefix("{ok, ");
        let value = value.and_then(|rest| rest.strip_suffix('}'));
        let value = value.unwrap_or_else(|| panic!("{expression}: {out} {:?}", said.stderr));
        value.to_owned()
    }

    /// The same, where it comes to a list of Erlang's own texts.
    pub(crate) fn lines(&self, expression: &str) -> Vec<String> {
        let text = self.eval(&format!("string:join({expression}, \"\\n\")"));
        if text == "[]" {
            return Vec::new();
        }
        let text = text.trim_matches('"').replace("\\\"", "\"");
        text.split("\\n").map(str::to_owned).collect()
    }

    /// The same, where it must come to `ok`.
    pub(crate) fn order(&self, expression: &str) {
        assert_eq!(self.eval(expression), "ok", "{expression}");
    }

    /// Makes a virtual host in which `guest` may do everything.
    pub(crate) fn add_vhost(&self, vhost: &str) {
        self.order(&format!("rabbit_vhost:add({}, {ACTOR})", binary(vhost)));
        self.permit("guest", vhost);
    }

    /// Removes one with all that is in it.
    pub(crate) fn delete_vhost(&self, vhost: &str) {
        self.order(&format!("rabbit_vhost:delete({}, {ACTOR})", binary(vhost)));
    }

    /// Makes a user who may do everything in that virtual host.
    pub(crate) fn add_user(&self, user: &str, password: &str, vhost: &str) {
        let (name, password) = (binary(user), binary(password));
        let add = format!("rabbit_auth_backend_internal:add_user({name}, {password}, {ACTOR})");
        self.order(&add);
        self.permit(user, vhost);
    }

    fn permit(&self, user: &str, vhost: &str) {
        self.permit_to_declare(user, vhost, ".*");
    }

    /// Lets a user declare those queues only whose names match, and read and write all.
    pub(crate) fn permit_to_declare(&self, user: &str, vhost: &str, pattern: &str) {
        let [user, vhost, pattern, all] = [user, vhost, pattern, ".*"].map(binary);
        let set = "rabbit_auth_backend_internal:set_permissions";
        self.order(&format!(
            "{set}({user}, {vhost}, {pattern}, {all}, {all}, {ACTOR})"
        ));
    }

    /// How many messages each queue of a virtual host has, those in somebody's hands included.
    pub(crate) fn totals(&self, vhost: &str) -> BTreeMap<String, u64> {
        // A quorum queue's machine is asked itself: what is told otherwise is old. All are looked at
        // twice, and the higher number counts: a message that moves from a queue to one that was
        // looked at before must not be overlooked.
        let total = "case amqqueue:get_type(Q) of
                rabbit_quorum_queue ->
                    Query = fun rabbit_fifo:query_messages_total/1,
                    {ok, {_, Number}, _} = ra:leader_query(amqqueue:get_pid(Q), Query),
                    Number;
                _ ->
                    [{messages, Number}] = rabbit_amqqueue:info(Q, [messages]),
                    Number
            end";
        let each = of_each_queue(vhost, "~s=~b", &format!("Name, {total}"));
        let mut totals = BTreeMap::new();
        for line in self.lines(&format!("{each} ++ {each}")) {
            let (queue, number) = line.rsplit_once('=').unwrap();
            let most: &mut u64 = totals.entry(queue.to_owned()).or_default();
            *most = (*most).max(number.parse().unwrap());
        }
        totals
    }

    /// Takes no larger messages from connections that are made from now on.
    pub(crate) fn set_max_message_size(&self, bytes: usize) {
        // The first is for RabbitMQ 3, the second for 4.
        self.order(&format!(
            "begin
                application:set_env(rabbit, max_message_size, {bytes}),
                persistent_term:put(max_message_size, {bytes})
            end"
        ));
    }

    /// Raises or ends the memory alarm: while it lasts nothing that publishes is read from.
    pub(crate) fn set_memory_alarm(&self, is_on: bool) {
        let share = if is_on { "0.0" } else { "0.6" };
        self.order(&format!(
            "vm_memory_monitor:set_vm_memory_high_watermark({share})"
        ));
    }
}

/// Who the broker's own records say it was.
const ACTOR: &str = r#"<<"tests">>"#;

/// Where the broker's programs are, if not in this system.
fn root() -> Option<PathBuf> {
    std::env::var_os(ROOT).map(PathBuf::from)
}

/// Starts one of the broker's programs, which stays.
fn start(program: &str, setup: impl FnOnce(&mut Command)) -> Server {
    let Some(root) = root() else {
        return Server::start(program, setup);
    };
    Server::start("chroot", |command| {
        command.arg(root).arg(program);
        setup(command);
    })
}

/// One of the broker's programs that answers and ends.
fn command(program: &str) -> Command {
    let Some(root) = root() else {
        return Command::new(program);
    };
    let mut command = Command::new("chroot");
    command.arg(root).arg(program);
    command
}

/// A text as an Erlang binary, whatever is in it.
pub(crate) fn binary(text: &str) -> String {
    let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
    format!("<<{}>>", bytes.join(","))
}

/// An Erlang expression for a list of texts: `what`, in which `Q` is a queue of that virtual host and
/// `Name` is its name, in that format. A queue that is gone meanwhile is left out.
pub(crate) fn of_each_queue(vhost: &str, format: &str, what: &str) -> String {
    let vhost = binary(vhost);
    format!(
        "lists:flatmap(fun(Q) ->
            {{resource, _, queue, Name}} = amqqueue:get_name(Q),
            try [lists:flatten(io_lib:format(\"{format}\", [{what}]))]
            catch exit:{{Why, _}} when Why =:= normal; Why =:= noproc; Why =:= shutdown -> []
            end
        end, rabbit_amqqueue:list({vhost}))"
    )
}

fn start_epmd(port: u16, log: &Path) -> Server {
    let log = File::create(log).unwrap();
    start("epmd", |command| {
        command
            .env("ERL_EPMD_PORT", port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .stdout(log.try_clone().unwrap())
            .stderr(log);
    })
}
