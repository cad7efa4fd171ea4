//! Each command of the load test runs, for as short a time as it can. `train` and `upgrade` have tests of their own.
//!
//! The tests need nginx, HAProxy, Mosquitto, Redis and valgrind, so they are in a module `external`, which
//! `make test-unit` leaves out.

mod external {
    use std::{
        path::{Path, PathBuf},
        process::{Command, Output},
    };

    /// The commands that measure: what makes them short, and a part of what they print.
    const MEASUREMENTS: &[(&str, &[&str], &str)] = &[
        ("run", &["--rounds", "1", "--seconds", "0.05", "--connections", "4", "--idle", "50", "--calls", "100"], "| "),
        ("bodies", &["--rounds", "1", "--seconds", "0.02", "--connections", "2"], "| "),
        ("events", &["--rounds", "1", "--streams", "4", "--open", "20"], "| "),
        ("handshakes", &["--rounds", "1", "--seconds", "0.05", "--callers", "2"], "| "),
        (
            "scale",
            &["--agents", "10,20", "--rounds", "1", "--seconds", "0.1", "--storm", "20", "--storm-seconds", "1"],
            "| ",
        ),
        ("keys", &["--keys", "10,20", "--rounds", "1", "--seconds", "0.1"], "| "),
        ("transports", &["--rounds", "1", "--calls", "10", "--seconds", "0.2", "--connections", "2"], "| mqtt"),
        ("soak", &["--seconds", "6", "--every", "2", "--callers", "2"], "calls"),
        ("count", &["--calls", "10", "--profile", "dev"], "API key + limit + schema"),
        ("shared", &["--limits", "10", "--agents", "5", "--callers", "5", "--rounds", "1", "--seconds", "0.3"], "| "),
        ("overload", &["--seconds", "0.5", "--settle", "0.5", "--connections", "16"], "| "),
        ("floods", &["--seconds", "0.5"], "| "),
    ];

    /// The commands that the others start, and those that have tests of their own.
    const OTHERS: &[&str] = &["train", "upgrade", "peers", "agent", "pingora", "hyper", "help"];

    fn loadtest(arguments: &[&str], folder: &Path) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost-loadtest"));
        command.args(arguments).current_dir(folder).output().expect("the load test starts")
    }

    /// Runs a command with the gateway of this build; what it writes goes to a folder of its own.
    fn run(name: &str) {
        let gatepost = Path::new(env!("CARGO_BIN_EXE_gatepost-loadtest")).with_file_name("gatepost");
        assert!(gatepost.exists(), "{} is missing (cargo build --workspace)", gatepost.display());
        let (_, options, expected) = MEASUREMENTS.iter().find(|(command, ..)| *command == name).expect("it is listed");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("loadtest-{name}"));
        std::fs::create_dir_all(&folder).expect("the folder is made");
        let mut arguments = vec![name];
        let gatepost = gatepost.to_str().expect("the path is text");
        match name {
            // These take programs to compare.
            "count" | "floods" => arguments.push(gatepost),
            _ => arguments.extend(["--gatepost", gatepost]),
        }
        arguments.extend(*options);
        let output = loadtest(&arguments, &folder);
        let printed = String::from_utf8_lossy(&output.stdout);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}\n{printed}{messages}", output.status);
        assert!(printed.contains(expected), "{arguments:?}: {printed}{messages}");
    }

    #[test]
    fn every_command_of_the_load_test_has_a_test() {
        let help = loadtest(&["--help"], Path::new("."));
        let help = String::from_utf8(help.stdout).expect("the help is text");
        let commands = help.split("Commands:\n").nth(1).expect("the help lists commands");
        let names = commands.lines().map_while(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
        for name in names.filter_map(|line| line.split_whitespace().next()) {
            let is_known = OTHERS.contains(&name) || MEASUREMENTS.iter().any(|(command, ..)| *command == name);
            assert!(is_known, "{name} has no test");
        }
    }

    macro_rules! each_runs {
        ($($test:ident: $name:literal,)*) => {
            $(#[test] fn $test() { run($name); })*
        };
    }

    each_runs! {
        run_compares_with_other_proxies: "run",
        bodies_of_all_sizes_are_measured: "bodies",
        event_streams_are_measured: "events",
        handshakes_are_measured: "handshakes",
        numbers_of_agents_are_measured: "scale",
        numbers_of_keys_are_measured: "keys",
        every_transport_is_measured: "transports",
        a_soak_checks_every_call: "soak",
        instructions_are_counted: "count",
        shared_limits_are_measured: "shared",
        overload_is_measured: "overload",
        floods_are_measured: "floods",
    }
}
