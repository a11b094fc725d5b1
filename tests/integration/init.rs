//! `ganger init`: what it writes can be tried with one command, whatever the language, and passes its own
//! test.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{PROGRAM, Workspace, trials};
use crate::python::python;
use crate::sdk::node::node_built;
use crate::sdk::{library, run};

trials![
    a_shell_script_is_tried_and_tested,
    a_python_worker_is_tried_and_tested,
    a_node_worker_is_tried_and_tested,
    a_go_worker_is_tried_and_tested,
    a_rust_worker_is_tried_and_tested,
    a_java_worker_is_tried_and_tested,
    a_ruby_worker_is_tried_and_tested,
    a_php_worker_is_tried_and_tested,
    a_dotnet_worker_passes_its_test_on_mono,
    a_worker_that_can_t_start_is_seen_at_once,
    a_library_may_be_another_folder,
    nothing_is_overwritten,
    a_folder_that_is_no_library_is_told,
];

/// A worker that has been made.
struct Made {
    site: Workspace,
    folder: PathBuf,
    variables: &'static [(&'static str, &'static str)],
}

impl Made {
    fn of(language: &str, sdk: Option<&Path>) -> Self {
        let site = Workspace::new();
        let mut args = vec!["init", language, "hello"];
        if let Some(sdk) = sdk {
            args.extend(["--sdk", sdk.to_str().unwrap()]);
        }
        let told = site.ganger(&args).good();
        assert!(told.ends_with("To see it answer: hello/try\n"), "{told}");
        let folder = site.path("hello");
        Self {
            site,
            folder,
            variables: &[],
        }
    }

    /// In its folder, with `ganger` on the path.
    fn command(&self, program: &str) -> Command {
        let ours = Path::new(PROGRAM).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", ours.display()))
            .env_remove("CARGO_TARGET_DIR")
            .envs(self.variables.iter().copied());
        command
    }

    /// The one command, and then the test.
    fn works(self, test: &[&str]) {
        let told = run(&mut self.command("./try"));
        assert!(told.contains("\nHello, world!\n"), "{told}");
        run(self.command(test[0]).args(&test[1..]));
        let args = ["dead", "list", "--config", "hello/ganger.toml"];
        assert_eq!(self.site.ganger(&args).good(), "no dead letters\n");
    }
}

fn a_shell_script_is_tried_and_tested() {
    Made::of("shell", None).works(&["./test"]);
}

/// In a place that is prepared, into which nothing is installed.
fn a_python_worker_is_tried_and_tested() {
    let mut made = Made::of("python", None);
    let place = python();
    let place = place.ancestors().nth(2).unwrap();
    symlink(place, made.folder.join("venv")).unwrap();
    made.variables = &[
        ("PIP_DRY_RUN", "1"),
        ("PIP_NO_INDEX", "1"),
        // As pip reads it, 0 says that there is none.
        ("PIP_NO_BUILD_ISOLATION", "0"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    made.works(&["venv/bin/python3", "-m", "unittest"]);
}

/// Its copy of the library is built with what another one has installed.
fn a_node_worker_is_tried_and_tested() {
    let made = Made::of("node", None);
    let library = made.folder.join("ganger-worker");
    let installed = node_built().join("node_modules");
    symlink(installed, library.join("node_modules")).unwrap();
    let mut build = made.command("npm");
    run(build
        .args(["run", "--silent", "build"])
        .current_dir(library));
    made.works(&["npm", "test"]);
}

fn a_library_may_be_another_folder() {
    let made = Made::of("node", Some(&node_built()));
    assert!(!made.folder.join("ganger-worker").exists());
    made.works(&["npm", "test"]);
}

fn a_go_worker_is_tried_and_tested() {
    Made::of("go", None).works(&["go", "test"]);
}

fn a_rust_worker_is_tried_and_tested() {
    let mut made = Made::of("rust", None);
    // As those have it who build all into one place.
    made.variables = &[("CARGO_TARGET_DIR", "elsewhere")];
    made.works(&["cargo", "test", "--quiet"]);
}

fn a_java_worker_is_tried_and_tested() {
    let made = Made::of("java", None);
    made.works(&["mvn", "--quiet", "--batch-mode", "test"]);
}

fn a_ruby_worker_is_tried_and_tested() {
    let made = Made::of("ruby", None);
    made.works(&["bundle", "exec", "ruby", "test_greet.rb"]);
}

fn a_php_worker_is_tried_and_tested() {
    let mut made = Made::of("php", None);
    made.variables = &[
        ("COMPOSER_DISABLE_NETWORK", "1"),
        ("COMPOSER_ALLOW_SUPERUSER", "1"),
    ];
    made.works(&["php", "test.php"]);
}

/// Mono has no projects: its compiler is given the library's sources with the worker's.
fn a_dotnet_worker_passes_its_test_on_mono() {
    let made = Made::of("dotnet", None);
    let mut files = made.command("sh");
    files.args([
        "-c",
        "mcs -langversion:7.2 -warnaserror -r:System.Core.dll -out:hello.exe *.cs ganger-worker/src/*.cs",
    ]);
    run(&mut files);
    let told = run(made.command("mono").args(["hello.exe", "test"]));
    assert_eq!(told, "2 passed\n");
}

/// Nobody waits for its answer, and what is wrong is told.
fn a_worker_that_can_t_start_is_seen_at_once() {
    let made = Made::of("shell", None);
    let worker = made.folder.join("worker");
    let script = std::fs::read_to_string(&worker).unwrap();
    std::fs::write(&worker, script.replace("#!/bin/sh", "#!/no/such/shell")).unwrap();
    let tried = made.command("./try").output().unwrap();
    let said = String::from_utf8(tried.stderr).unwrap();
    assert_eq!(tried.status.code(), Some(1), "{said}");
    assert!(
        said.contains("before it connected") && said.contains("`/no/such/shell`"),
        "{said}"
    );
    assert!(!said.contains("no answer"), "{said}");
}

fn nothing_is_overwritten() {
    let site = Workspace::new();
    site.put("setup", "mine", false);
    let told = site.ganger(&["init", "shell"]).bad(1);
    assert!(
        told.contains("overwritten: `.` already has setup"),
        "{told}"
    );
    assert!(!site.path("worker").exists() && !site.path("try").exists());
    assert_eq!(std::fs::read_to_string(site.path("setup")).unwrap(), "mine");
    std::fs::remove_file(site.path("setup")).unwrap();
    let told = site.ganger(&["init", "shell"]).good();
    assert!(told.ends_with("To see it answer: ./try\n"), "{told}");
}

fn a_folder_that_is_no_library_is_told() {
    let site = Workspace::new();
    let sdk = library("go");
    let sdk = sdk.to_str().unwrap();
    for (args, why) in [
        (
            ["init", "python", "--sdk", sdk],
            "is not the library's folder: it has no pyproject.toml",
        ),
        (
            ["init", "python", "--sdk", "./nowhere"],
            "there is no folder `./nowhere`",
        ),
        (
            ["init", "shell", "--sdk", sdk],
            "such a worker needs no library",
        ),
    ] {
        let told = site.ganger(&args).bad(2);
        assert!(told.contains(why), "{told}");
    }
    assert!(!site.path("try").exists());
}
