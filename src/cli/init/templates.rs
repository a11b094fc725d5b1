//! Files that `ganger init` writes, language by language. The texts are files in `templates/`, where they can
//! be read and tried in their own format; this module only lists them.

use clap::ValueEnum;

use super::libraries;

/// The text of a template.
macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../../templates/", $name))
    };
}

/// Languages in which a worker may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    Dotnet,
    Go,
    Java,
    Node,
    Php,
    Python,
    Ruby,
    Rust,
    /// Any script or program, started anew for each message
    Shell,
}

/// A file's name and its text.
type File = (&'static str, &'static str);

/// Properties that differ from language to language.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) files: &'static [File],
    /// Keys of the pool; the arguments as TOML.
    pub(super) command: &'static str,
    pub(super) args: &'static str,
    /// Contents of the page: the command of the test, the worker's file, its library.
    pub(super) test: &'static str,
    pub(super) worker: &'static str,
    pub(super) library: &'static str,
    /// Files that git is to ignore.
    pub(super) ignored: &'static str,
    /// Its library; none for a language that needs none.
    pub(super) sdk: Option<Sdk>,
}

/// The library of a language.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sdk {
    /// File that identifies its folder.
    pub(super) manifest: &'static str,
    /// Its files, of which a worker gets a copy.
    pub(super) files: &'static [File],
}

/// Folder of a worker's copy of the library, and its name in the worker's files.
pub(super) const LIBRARY: &str = "ganger-worker";
pub(super) const LIBRARY_PATH: &str = "./ganger-worker";

/// Files that all workers have.
pub(super) const COMMON: [File; 4] = [
    (".gitignore", "ganger.db*\nganger.log\nganger.sock\n"),
    ("README.md", text!("common/README.md")),
    ("ganger.toml", text!("common/ganger.toml")),
    ("try", text!("common/try")),
];

impl Language {
    pub(super) fn template(self) -> &'static Template {
        match self {
            Self::Dotnet => &DOTNET,
            Self::Go => &GO,
            Self::Java => &JAVA,
            Self::Node => &NODE,
            Self::Php => &PHP,
            Self::Python => &PYTHON,
            Self::Ruby => &RUBY,
            Self::Rust => &RUST,
            Self::Shell => &SHELL,
        }
    }
}

const DOTNET: Template = Template {
    files: &[
        ("Greeter.cs", text!("dotnet/Greeter.cs")),
        ("GreeterTest.cs", text!("dotnet/GreeterTest.cs")),
        ("Program.cs", text!("dotnet/Program.cs")),
        ("hello.csproj", text!("dotnet/hello.csproj")),
        ("setup", text!("dotnet/setup")),
    ],
    command: "dotnet",
    args: r#"["out/hello.dll"]"#,
    test: "dotnet out/hello.dll test",
    worker: "Greeter.cs",
    library: "Ganger.Worker",
    ignored: text!("dotnet/gitignore"),
    sdk: Some(Sdk {
        manifest: "src/Ganger.Worker.csproj",
        files: libraries::DOTNET,
    }),
};

const GO: Template = Template {
    files: &[
        ("go.mod", text!("go/go.mod")),
        ("main.go", text!("go/main.go")),
        ("main_test.go", text!("go/main_test.go")),
        ("setup", text!("go/setup")),
    ],
    command: "./worker",
    args: "[]",
    test: "go test",
    worker: "main.go",
    library: "ganger.invalid/worker-sdk/go",
    ignored: text!("go/gitignore"),
    sdk: Some(Sdk {
        manifest: "go.mod",
        files: libraries::GO,
    }),
};

const JAVA: Template = Template {
    files: &[
        ("pom.xml", text!("java/pom.xml")),
        ("setup", text!("java/setup")),
        (
            "src/main/java/hello/Hello.java",
            text!("java/src/main/java/hello/Hello.java"),
        ),
        (
            "src/test/java/hello/HelloTest.java",
            text!("java/src/test/java/hello/HelloTest.java"),
        ),
    ],
    command: "java",
    args: r#"["-cp", "target/classes:target/libs/*", "hello.Hello"]"#,
    test: "mvn test",
    worker: "src/main/java/hello/Hello.java",
    library: "ganger:ganger-worker",
    ignored: text!("java/gitignore"),
    // Maven knows no folders: `setup` puts the library where Maven keeps what it has fetched.
    sdk: Some(Sdk {
        manifest: "pom.xml",
        files: libraries::JAVA,
    }),
};

const NODE: Template = Template {
    files: &[
        ("greet.js", text!("node/greet.js")),
        ("greet.test.js", text!("node/greet.test.js")),
        ("package.json", text!("node/package.json")),
        ("setup", text!("node/setup")),
        ("worker.js", text!("node/worker.js")),
    ],
    command: "node",
    args: r#"["worker.js"]"#,
    test: "npm test",
    worker: "greet.js",
    library: "ganger-worker",
    ignored: text!("node/gitignore"),
    sdk: Some(Sdk {
        manifest: "package.json",
        files: libraries::NODE,
    }),
};

const PHP: Template = Template {
    files: &[
        ("composer.json", text!("php/composer.json")),
        ("greet.php", text!("php/greet.php")),
        ("setup", text!("php/setup")),
        ("test.php", text!("php/test.php")),
        ("worker.php", text!("php/worker.php")),
    ],
    command: "php",
    args: r#"["worker.php"]"#,
    test: "php test.php",
    worker: "greet.php",
    library: "ganger/worker",
    ignored: text!("php/gitignore"),
    sdk: Some(Sdk {
        manifest: "composer.json",
        files: libraries::PHP,
    }),
};

const PYTHON: Template = Template {
    files: &[
        ("requirements.txt", text!("python/requirements.txt")),
        ("setup", text!("python/setup")),
        ("test_worker.py", text!("python/test_worker.py")),
        ("worker.py", text!("python/worker.py")),
    ],
    command: "venv/bin/python3",
    args: r#"["worker.py"]"#,
    test: "venv/bin/python3 -m unittest",
    worker: "worker.py",
    library: "ganger_worker",
    ignored: text!("python/gitignore"),
    sdk: Some(Sdk {
        manifest: "pyproject.toml",
        files: libraries::PYTHON,
    }),
};

const RUBY: Template = Template {
    files: &[
        ("Gemfile", text!("ruby/Gemfile")),
        ("greet.rb", text!("ruby/greet.rb")),
        ("setup", text!("ruby/setup")),
        ("test_greet.rb", text!("ruby/test_greet.rb")),
        ("worker.rb", text!("ruby/worker.rb")),
    ],
    command: "bundle",
    args: r#"["exec", "ruby", "worker.rb"]"#,
    test: "bundle exec ruby test_greet.rb",
    worker: "greet.rb",
    library: "ganger-worker",
    ignored: text!("ruby/gitignore"),
    sdk: Some(Sdk {
        manifest: "ganger-worker.gemspec",
        files: libraries::RUBY,
    }),
};

const RUST: Template = Template {
    files: &[
        // Under its own name cargo would leave the whole folder out of the crate.
        ("Cargo.toml", text!("rust/manifest.toml")),
        ("setup", text!("rust/setup")),
        ("src/main.rs", text!("rust/src/main.rs")),
    ],
    command: "target/debug/hello",
    args: "[]",
    test: "cargo test",
    worker: "src/main.rs",
    library: "ganger-worker",
    ignored: text!("rust/gitignore"),
    sdk: Some(Sdk {
        manifest: "Cargo.toml",
        files: libraries::RUST,
    }),
};

const SHELL: Template = Template {
    files: &[
        ("setup", text!("shell/setup")),
        ("test", text!("shell/test")),
        ("worker", text!("shell/worker")),
    ],
    command: "ganger",
    args: r#"["exec", "--", "./worker"]"#,
    test: "./test",
    worker: "worker",
    library: "ganger exec",
    ignored: "",
    sdk: None,
};
