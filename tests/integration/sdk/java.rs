//! The library for Java, of which `tests/run` makes a built copy.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Worker, run};
use crate::conformance::Checked;
use crate::harness::{Workspace, trials};

trials![
    passes_its_own_tests,
    packs_jars_that_work_beside_what_they_need,
    documents_itself,
    speaks_version_1,
    speaks_version_2,
    outlives_kills,
    passes_conformance,
];

const VERSION: &str = "0.1.0";
const CHAOS: &str = "ganger.worker.Chaos";

/// The copy of the library in which `tests/run` has built what it takes.
pub(crate) fn java_built() -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_JAVA").map(PathBuf::from);
    let in_target = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("java");
    let built = prepared.unwrap_or_else(in_target);
    assert!(
        jar(&built, "").exists(),
        "no library for Java at {}: run tests/run, which builds it",
        built.display()
    );
    built
}

fn jar(built: &Path, kind: &str) -> PathBuf {
    built.join(format!("target/ganger-worker-{VERSION}{kind}.jar"))
}

/// A program of the JDK, or Maven, in the copy.
fn in_java(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/proto-spec/vectors");
    command
        .args(args)
        .current_dir(java_built())
        .env("GANGER_VECTORS", vectors);
    command
}

/// A test worker, in a JVM that starts fast.
fn java_worker(main: &str) -> Worker {
    let told = run(&mut in_java(
        "java",
        &["-XshowSettings:properties", "-version"],
    ));
    let home = told
        .lines()
        .find_map(|line| line.trim().strip_prefix("java.home = "))
        .unwrap_or_else(|| panic!("no java.home: {told}"));
    let target = java_built().join("target");
    let target = target.display();
    let path = format!("{target}/classes:{target}/test-classes:{target}/libs/*");
    let args = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"];
    let args = args.into_iter().chain(["-cp", &path, main]);
    Worker {
        program: Path::new(home).join("bin/java"),
        args: args.map(String::from).collect(),
    }
}

fn passes_its_own_tests() {
    let told = run(&mut in_java("mvn", &["--batch-mode", "surefire:test"]));
    let last = told.lines().rev().find(|line| line.contains("Tests run:"));
    let last = last.unwrap_or_else(|| panic!("no tests: {told}"));
    assert!(!last.contains("Tests run: 0"), "{told}");
    assert!(
        last.contains("Failures: 0, Errors: 0, Skipped: 0"),
        "{told}"
    );
}

fn packs_jars_that_work_beside_what_they_need() {
    let built = java_built();
    for kind in ["-sources", "-javadoc"] {
        assert!(jar(&built, kind).exists(), "no jar of {kind}");
    }
    let site = Workspace::new();
    let uses = "import ganger.worker.Outcome;\n\
        import ganger.worker.testing.Harness;\n\
        import ganger.worker.testing.Message;\n\
        class Twice {\n\
        public static void main(String[] args) throws Exception {\n\
        Message message = Message.of(\"ab\").header(\"traceparent\", \"of nobody here\");\n\
        System.out.println(Harness.work(task -> Outcome.reply(task.text() + task.text()), message).get(0).text());\n\
        }\n\
        }\n";
    site.put("Twice.java", uses, false);
    let needs = built.join("target/libs");
    let needs = std::fs::read_dir(needs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_str().unwrap().contains("/msgpack-core-"))
        .unwrap();
    let path = [jar(&built, ""), needs].map(|jar| jar.display().to_string());
    let mut command = Command::new("java");
    command
        .args(["-cp", &path.join(":"), "Twice.java"])
        .current_dir(site.path(""));
    assert_eq!(run(&mut command), "abab\n");
}

fn documents_itself() {
    let site = Workspace::new();
    let mut command = in_java("javadoc", &["-quiet", "-Xdoclint:all", "-Werror"]);
    command.args(["-encoding", "UTF-8"]);
    command.arg("-d").arg(site.path("doc"));
    command.args(["-cp", "target/libs/*", "-sourcepath", "src/main/java"]);
    let told = run(command.args(["ganger.worker", "ganger.worker.testing"]));
    assert_eq!(told, "");
    assert!(site.path("doc/ganger/worker/Worker.html").exists());
}

fn speaks_version_1() {
    java_worker(CHAOS).speaks(1);
}

fn speaks_version_2() {
    java_worker(CHAOS).speaks(2);
}

fn outlives_kills() {
    java_worker(CHAOS).outlives_kills();
}

/// Also with all that a worker may send meanwhile, and with one that is interrupted.
fn passes_conformance() {
    let site = Workspace::new();
    let mut options = Vec::new();
    for body in ["emit 2", "log", "progress", "echo on"] {
        site.put(body, body, false);
        options.extend(["--message".into(), site.path(body).display().to_string()]);
    }
    site.put("slow", "sleep 1000", false);
    options.extend([
        "--slow-message".into(),
        site.path("slow").display().to_string(),
    ]);
    let worker = java_worker("ganger.worker.Modes");
    let mut command = vec![worker.program.to_str().unwrap()];
    command.extend(worker.args.iter().map(String::as_str));
    command.extend(["4", "67108864", "virtual"]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let checked = Checked::of(&site, &options, &command);
    checked.conforms_in(&["version 2", "version 1"]);
}
