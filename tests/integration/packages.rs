//! What is handed out: the manual, the archive, the package of Debian and its maintainer scripts, made
//! by the scripts in `packaging/` from this build, in a copy of the checkout.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::harness::{PROGRAM, Workspace};

crate::harness::trials![
    the_manual_is_clean_and_whole,
    a_manual_that_can_not_be_written_is_told,
    the_same_program_makes_the_same_archive,
    the_package_holds_what_it_should,
    a_first_installation_starts_nothing,
    an_upgrade_restarts_what_runs,
    an_upgrade_that_the_configuration_does_not_suit_leaves_the_old_one,
    removal_stops_and_keeps_the_messages,
    the_list_of_parts_says_what_it_needs,
];

// -- the manual --

fn the_manual_is_clean_and_whole() {
    let site = Workspace::new();
    let whole = site.ganger(&["man"]).good();
    site.put("ganger.1", &whole, false);
    let shown = rendered(&site.path("ganger.1"));
    for part in ["EXIT STATUS", "SIGHUP", "ganger-dead(1)", "the error is on"] {
        assert!(shown.contains(part), "without {part:?}: {shown}");
    }
    site.ganger(&["man", "--dir", "pages"]).good();
    let mut names: Vec<String> = fs::read_dir(site.path("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in &names {
        rendered(&site.path("pages").join(name));
    }
    assert!(names.contains(&"ganger-dead-retry.1".into()), "{names:?}");
    let hidden = |name: &String| {
        ["demo-worker", "exec-guard", "help"]
            .iter()
            .any(|word| name.contains(word))
    };
    assert!(!names.iter().any(hidden), "{names:?}");
    let same = fs::read_to_string(site.path("pages/ganger.1")).unwrap();
    assert_eq!(same, whole);
}

/// The page as a terminal shows it; nothing in it is complained of.
fn rendered(page: &Path) -> String {
    let out = Command::new("groff")
        .args(["-ww", "-man", "-Tutf8", "-P-cbou"])
        .arg(page)
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && complaints.is_empty(),
        "{page:?}: {complaints}"
    );
    String::from_utf8(out.stdout).unwrap()
}

fn a_manual_that_can_not_be_written_is_told() {
    let site = Workspace::new();
    site.put("file", "", false);
    let told = site.ganger(&["man", "--dir", "file"]).bad(1);
    assert!(told.contains("writing the manual to file"), "{told}");
}

// -- what is packed --

/// A checkout that is packed from, with a target directory of its own, and this build without what a
/// debugger would want of it.
struct Checkout {
    site: Workspace,
    program: PathBuf,
}

impl Checkout {
    fn new() -> Self {
        let site = Workspace::new();
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        for entry in fs::read_dir(top).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            match name {
                "target" | ".git" => {}
                "Cargo.toml" | "Cargo.lock" => drop(fs::copy(&path, site.path(name)).unwrap()),
                _ => symlink(&path, site.path(name)).unwrap(),
            }
        }
        let program = site.path("stripped");
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&program).arg(PROGRAM);
        assert!(strip.status().unwrap().success());
        Self { site, program }
    }

    /// Runs one of the scripts on the program, in that shell's umask.
    fn pack(&self, script: &str, umask: &str) -> String {
        let tools = tools();
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let out = Command::new("sh")
            .args(["-c", "umask $0; exec \"$@\"", umask])
            .arg(self.site.path("packaging").join(script))
            .arg(&self.program)
            .current_dir("/")
            .env("PATH", path)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .env("CARGO_DEB_OPTIONS", "--fast")
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{script}: {told}");
        String::from_utf8(out.stdout).unwrap()
    }

    fn package(&self, name: &str) -> PathBuf {
        self.site.path("target/package").join(name)
    }

    /// The one file there with that end.
    fn packed(&self, end: &str) -> PathBuf {
        let files = fs::read_dir(self.package("")).unwrap();
        let mut files = files
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_str().unwrap().ends_with(end));
        files.next().unwrap_or_else(|| panic!("no {end}"))
    }
}

/// Where `tests/run` has put `cargo deb`.
fn tools() -> PathBuf {
    let prepared = std::env::var_os("GANGER_TEST_TOOLS").map(PathBuf::from);
    prepared.unwrap_or_else(|| {
        Path::new(env!("CARGO_TARGET_TMPDIR"))
            .with_file_name("tools")
            .join("bin")
    })
}

fn ran(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).unwrap()
}

/// What `tar --list --verbose` tells: mode, owner and name of each file that is no directory.
fn listed(listing: &str) -> Vec<String> {
    let files = listing.lines().filter(|line| !line.starts_with('d'));
    let told = files.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{} {} {}", words[0], words[1], words[5])
    });
    told.collect()
}

fn the_same_program_makes_the_same_archive() {
    let checkout = Checkout::new();
    let made = checkout.pack("tarball", "022");
    let archive = checkout.packed(".tar.gz");
    assert!(archive.ends_with(made.trim().rsplit('/').next().unwrap()));
    ran(Command::new("sha256sum")
        .args(["--check", "--strict"])
        .arg(checkout.packed(".sha256"))
        .current_dir(checkout.package("")));
    let first = fs::read(&archive).unwrap();
    ran(Command::new("touch").arg(&checkout.program));
    checkout.pack("tarball", "077");
    assert!(
        fs::read(&archive).unwrap() == first,
        "two archives of one program"
    );
    let listing = ran(Command::new("tar")
        .args(["--numeric-owner", "-tvzf"])
        .arg(&archive));
    let files = listed(&listing);
    let root = archive
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .trim_end_matches(".tar.gz");
    for (mode, file) in [
        ("-rwxr-xr-x", "ganger"),
        ("-rw-r--r--", "LICENSE"),
        ("-rw-r--r--", "README.md"),
        ("-rw-r--r--", "completions/ganger.bash"),
        ("-rw-r--r--", "config/ganger.toml"),
        ("-rw-r--r--", "man/man1/ganger.1"),
        ("-rw-r--r--", "systemd/ganger.service"),
        (
            "-rw-r--r--",
            "systemd/ganger.service.d/before-systemd-253.conf",
        ),
        (
            "-rw-r--r--",
            "systemd/ganger.service.d/before-systemd-253.conf",
        ),
    ] {
        let wanted = format!("{mode} 0/0 {root}/{file}");
        assert!(files.contains(&wanted), "without {wanted}: {listing}");
    }
}

/// The files of the package but the manual and the documents, of which there are many.
const PACKED: [&str; 11] = [
    "-rw-r----- 0/0 ./etc/ganger/ganger.toml",
    "-rwxr-xr-x 0/0 ./usr/bin/ganger",
    "-rw-r--r-- 0/0 ./usr/lib/systemd/system/ganger.service",
    "-rw-r--r-- 0/0 ./usr/lib/systemd/system/ganger@.service",
    "-rw-r--r-- 0/0 ./usr/share/bash-completion/completions/ganger",
    "-rw-r--r-- 0/0 ./usr/share/doc/ganger/SECURITY.md",
    "-rw-r--r-- 0/0 ./usr/share/doc/ganger/copyright",
    "-rw-r--r-- 0/0 ./usr/share/doc/ganger/examples/before-systemd-253.conf",
    "-rw-r--r-- 0/0 ./usr/share/fish/vendor_completions.d/ganger.fish",
    "-rw-r--r-- 0/0 ./usr/share/man/man1/ganger.1.gz",
    "-rw-r--r-- 0/0 ./usr/share/zsh/vendor-completions/_ganger",
];

fn the_package_holds_what_it_should() {
    let checkout = Checkout::new();
    checkout.pack("make-deb", "022");
    let package = checkout.packed(".deb");
    let mut files = listed(&ran(Command::new("dpkg-deb")
        .arg("--contents")
        .arg(&package)));
    files.sort_by(|one, other| one.rsplit(' ').next().cmp(&other.rsplit(' ').next()));
    let many = |file: &String| file.contains("/doc/") || file.contains("/man1/");
    let wanted: Vec<_> = PACKED.iter().copied().map(str::to_owned).collect();
    assert!(wanted.iter().all(|file| files.contains(file)), "{files:#?}");
    files.retain(|file| !many(file) || wanted.contains(file));
    assert_eq!(files, wanted);

    let field = |name: &str| {
        ran(Command::new("dpkg-deb")
            .arg("--field")
            .arg(&package)
            .arg(name))
    };
    assert_eq!(
        field("Version").trim(),
        concat!(env!("CARGO_PKG_VERSION"), "-1")
    );
    let depends = field("Depends");
    assert!(
        depends.contains("adduser") && depends.contains("libc6"),
        "{depends}"
    );
    let conffiles = ran(Command::new("dpkg-deb")
        .arg("--info")
        .arg(&package)
        .arg("conffiles"));
    assert_eq!(conffiles.trim(), "/etc/ganger/ganger.toml");

    let root = checkout.site.path("unpacked");
    ran(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(&root));
    let program = root.join("usr/bin/ganger");
    ran(Command::new(&program)
        .arg("check")
        .arg("--config")
        .arg(root.join("etc/ganger/ganger.toml")));
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/ganger.service")).unwrap();
    let start = "\nExecStart=/usr/bin/ganger run --config /etc/ganger/ganger.toml\n";
    assert!(unit.contains(start), "{unit}");
}

// -- the maintainer scripts --

/// A machine as a maintainer script sees it: programs that only note how they were called.
struct Machine {
    site: Workspace,
}

impl Machine {
    /// One on which systemd runs, with the service or without, and `ganger check` so minded.
    fn new(service_runs: bool, check: &str) -> Self {
        let site = Workspace::new();
        fs::create_dir_all(site.path("run/systemd/system")).unwrap();
        fs::create_dir_all(site.path("etc/ganger")).unwrap();
        fs::create_dir_all(site.path("var/lib/ganger")).unwrap();
        fs::create_dir(site.path("bin")).unwrap();
        site.put("etc/ganger/ganger.toml", "", false);
        let active = if service_runs { "0" } else { "3" };
        for (program, ends) in [
            ("adduser", "0"),
            ("chown", "0"),
            ("deb-systemd-helper", "0"),
            ("deb-systemd-invoke", "0"),
            ("ganger", check),
            ("getent", "2"),
            ("systemctl", active),
        ] {
            let noted = site.path("calls");
            let stub = format!(
                "#!/bin/sh\necho {program} \"$@\" >>{}\nexit {ends}\n",
                noted.display()
            );
            site.put(&format!("bin/{program}"), &stub, true);
        }
        Self { site }
    }

    /// What the script says, on stdout and stderr.
    fn runs(&self, script: &str, args: &[&str]) -> String {
        let path = format!("{}:/usr/bin:/bin", self.site.path("bin").display());
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("packaging/deb")
            .join(script);
        let out = Command::new(&script)
            .args(args)
            .env_clear()
            .env("PATH", path)
            .env("DPKG_ROOT", self.site.path(""))
            .output()
            .unwrap();
        let told = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        assert!(out.status.success(), "{script:?} {args:?}: {told}");
        told
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.site.path("calls")).unwrap()
    }
}

fn a_first_installation_starts_nothing() {
    let machine = Machine::new(false, "0");
    let told = machine.runs("postinst", &["configure", ""]);
    assert!(told.contains("systemctl enable --now ganger"), "{told}");
    let calls = machine.calls();
    assert!(calls.contains("adduser --system --group"), "{calls}");
    assert!(!calls.contains("deb-systemd-invoke"), "{calls}");
    let mode = |name: &str| {
        let metadata = fs::metadata(machine.site.path(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("etc/ganger"), mode("etc/ganger/ganger.toml")),
        (0o750, 0o640)
    );
}

fn an_upgrade_restarts_what_runs() {
    let machine = Machine::new(true, "0");
    machine.runs("prerm", &["upgrade", "0.2.0"]);
    machine.runs("postinst", &["configure", "0.1.0-1"]);
    let calls = machine.calls();
    let restarts = calls
        .matches("deb-systemd-invoke restart ganger.service")
        .count();
    assert_eq!(restarts, 1, "{calls}");
    assert!(!calls.contains("stop"), "{calls}");
    assert!(!calls.contains("chown"), "{calls}");

    let idle = Machine::new(false, "0");
    idle.runs("postinst", &["configure", "0.1.0-1"]);
    assert!(
        !idle.calls().contains("deb-systemd-invoke"),
        "{}",
        idle.calls()
    );
}

fn an_upgrade_that_the_configuration_does_not_suit_leaves_the_old_one() {
    let machine = Machine::new(true, "2");
    let told = machine.runs("postinst", &["configure", "0.1.0-1"]);
    assert!(told.contains("the old one goes on running"), "{told}");
    assert!(
        !machine.calls().contains("deb-systemd-invoke"),
        "{}",
        machine.calls()
    );
}

fn removal_stops_and_keeps_the_messages() {
    let machine = Machine::new(true, "0");
    machine.runs("prerm", &["remove"]);
    machine.runs("postrm", &["remove"]);
    let told = machine.runs("postrm", &["purge"]);
    assert!(told.contains("may hold messages"), "{told}");
    assert!(machine.site.path("var/lib/ganger").is_dir());
    let calls = machine.calls();
    assert!(
        calls.contains("deb-systemd-invoke stop ganger.service"),
        "{calls}"
    );
}

// -- the list of parts --

fn the_list_of_parts_says_what_it_needs() {
    let site = Workspace::new();
    fs::create_dir(site.path("bin")).unwrap();
    site.put("bin/cargo", "#!/bin/sh\nexit 101\n", true);
    let path = format!(
        "{}:{}",
        site.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/sbom");
    let out = Command::new(script).env("PATH", path).output().unwrap();
    let told = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(
        told.contains("needs `cargo install cargo-cyclonedx --locked`"),
        "{told}"
    );
}
