//! `gatepost demo`: each command that it prints is run in a shell.

use crate::support::gateway::gatepost_command;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long the demo may take to start or to end.
const TIMEOUT: Duration = Duration::from_secs(20);

struct Demo {
    child: Child,
    /// The output up to the hint how to end the demo.
    text: String,
    stdout: BufReader<ChildStdout>,
    /// The folder for temporary files: the demo creates its own folder there and must not write anywhere else.
    temporary: TempDir,
    working: TempDir,
}

impl Demo {
    fn start() -> Self {
        let (temporary, working) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let mut child = gatepost_command()
            .arg("demo")
            .env("TMPDIR", temporary.path())
            .current_dir(working.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            while !text.contains("Ctrl-C") && stdout.read_line(&mut text).is_ok_and(|count| count > 0) {}
            let _ = sender.send(text);
            stdout
        });
        let text = receiver.recv_timeout(TIMEOUT).expect("the demo prints nothing");
        Self { child, text, stdout: reader.join().unwrap(), temporary, working }
    }

    /// The commands that the demo prints, in order.
    fn commands(&self) -> Vec<String> {
        self.text.lines().filter(|line| line.starts_with("curl ")).map(str::to_owned).collect()
    }

    fn has_empty_folders(&self) -> bool {
        [&self.temporary, &self.working].iter().all(|folder| folder.path().read_dir().unwrap().next().is_none())
    }

    /// Ends the demo by `signal`, and returns its exit code and the rest of its stdout and stderr.
    fn end(&mut self, signal: Signal) -> (Option<i32>, String, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "the demo does not end"),
            }
            std::thread::yield_now();
        };
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (status.code(), stdout, stderr)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a printed command in a shell, and returns the body and the status of the response.
fn run_in_shell(command: &str) -> (String, String) {
    let command = command.replacen("curl ", "curl --max-time 10 -w '%{stderr}%{http_code}' ", 1);
    // The last -w of a command line applies. The one that the demo prints only adds a newline.
    let command = command.replacen("-w '\\n' ", "", 1);
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_command_of_the_demo_works_as_described() {
    let mut demo = Demo::start();
    let commands = demo.commands();
    let [success, violation, no_key, stream, counted, explained] = commands.as_slice() else { panic!("{}", demo.text) };
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|why| panic!("{why}: {text}"));

    let (body, status) = run_in_shell(success);
    assert_eq!((json(&body)["translated_text"].as_str(), status.as_str()), (Some("Hello World"), "200"));
    let (body, status) = run_in_shell(violation);
    assert_eq!((json(&body)["error"]["code"].as_str(), status.as_str()), (Some("InvalidInput"), "400"));
    assert_eq!(json(&body)["error"]["details"][0]["pointer"], "/target_language");
    let (body, status) = run_in_shell(no_key);
    assert_eq!((json(&body)["error"]["code"].as_str(), status.as_str()), (Some("Unauthorized"), "401"));
    let (body, status) = run_in_shell(stream);
    assert!(status == "200" && body.matches("data: {\"token\"").count() > 10, "{status}: {body}");
    assert!(body.trim_end().ends_with("data: [DONE]"), "{body}");
    let (body, _) = run_in_shell(counted);
    for code in ["ok", "InvalidInput", "Unauthorized"] {
        assert!(body.contains(&format!("code=\"{code}\"")), "{code} was not counted: {body}");
    }
    let (body, status) = run_in_shell(explained);
    let decision = &json(&body)["decisions"][0];
    assert_eq!(
        (decision["step"].as_str(), decision["rule"].as_str(), status.as_str()),
        (Some("authentication"), Some("auth"), "200")
    );
    assert_eq!(decision["line"].as_str().and_then(|line| line.split_once(':')).unwrap().0, "gatepost.yaml");

    let (status, stdout, stderr) = demo.end(Signal::INT);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(demo.has_empty_folders(), "the demo leaves files behind");
}

#[test]
fn the_demo_writes_only_in_its_folder_which_only_its_owner_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let mut demo = Demo::start();
    let created: Vec<_> = demo.temporary.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let [folder] = created.as_slice() else { panic!("{created:?}") };
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(demo.text.contains(&folder.display().to_string()), "{}", demo.text);
    assert!(demo.working.path().read_dir().unwrap().next().is_none());
    // A closed terminal sends SIGHUP.
    let (status, _, stderr) = demo.end(Signal::HUP);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert!(demo.has_empty_folders(), "the demo leaves files behind");
}

#[test]
fn without_a_temporary_folder_the_demo_fails_with_one_line() {
    let output = gatepost_command().arg("demo").env("TMPDIR", Path::new("/nonexistent")).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.starts_with("gatepost: cannot create the folder /nonexistent/gatepost-demo-"), "{stderr}");
}
