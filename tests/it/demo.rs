//! `gatepost demo`, as somebody meets it who has just typed it: every line that it prints is pasted into a shell.

use crate::support::gateway::command;
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

/// How long the demo may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

struct Demo {
    child: Child,
    text: String,
    rest: BufReader<ChildStdout>,
    /// Where the demo makes its own folder, and the only place where it may write.
    temporary: TempDir,
    home: TempDir,
}

impl Demo {
    fn start() -> Self {
        let (temporary, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let mut child = command()
            .arg("demo")
            .env("TMPDIR", temporary.path())
            .current_dir(home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let (told, hears) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            while !text.contains("Ctrl-C") && rest.read_line(&mut text).is_ok_and(|count| count > 0) {}
            let _ = told.send(text);
            rest
        });
        let text = hears.recv_timeout(PATIENCE).expect("the demo says nothing");
        Self { child, text, rest: reader.join().unwrap(), temporary, home }
    }

    /// The lines to paste, in their order.
    fn lines(&self) -> Vec<String> {
        self.text.lines().filter(|line| line.starts_with("curl ")).map(str::to_owned).collect()
    }

    fn empty(&self) -> bool {
        [&self.temporary, &self.home].iter().all(|folder| folder.path().read_dir().unwrap().next().is_none())
    }

    /// Ends it by `signal`; what it said meanwhile on stdout and stderr.
    fn end(&mut self, signal: Signal) -> (Option<i32>, String, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < until, "the demo does not end"),
            }
            std::thread::yield_now();
        };
        let (mut said, mut wrong) = (String::new(), String::new());
        self.rest.read_to_string(&mut said).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut wrong).unwrap();
        (status.code(), said, wrong)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a shell prints for a pasted line; curl says the status, too.
fn paste(line: &str) -> (String, String) {
    let line = line.replacen("curl ", "curl --max-time 10 -w '%{stderr}%{http_code}' ", 1);
    // A second -w would win: the line's own one only ends the line.
    let line = line.replacen("-w '\\n' ", "", 1);
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_line_of_the_demo_does_what_it_says() {
    let mut demo = Demo::start();
    let lines = demo.lines();
    let [success, violation, no_key, stream, counted] = lines.as_slice() else { panic!("{}", demo.text) };
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|why| panic!("{why}: {text}"));

    let (body, status) = paste(success);
    assert_eq!((json(&body)["translated_text"].as_str(), status.as_str()), (Some("Hello World"), "200"));
    let (body, status) = paste(violation);
    assert_eq!((json(&body)["error"]["code"].as_str(), status.as_str()), (Some("InvalidInput"), "400"));
    assert_eq!(json(&body)["error"]["details"][0]["pointer"], "/target_language");
    let (body, status) = paste(no_key);
    assert_eq!((json(&body)["error"]["code"].as_str(), status.as_str()), (Some("Unauthorized"), "401"));
    let (body, status) = paste(stream);
    assert!(status == "200" && body.matches("data: {\"token\"").count() > 10, "{status}: {body}");
    assert!(body.trim_end().ends_with("data: [DONE]"), "{body}");
    let (body, _) = paste(counted);
    for code in ["ok", "InvalidInput", "Unauthorized"] {
        assert!(body.contains(&format!("code=\"{code}\"")), "{code} was not counted: {body}");
    }

    let (status, said, wrong) = demo.end(Signal::INT);
    assert_eq!((status, wrong.as_str()), (Some(0), ""), "{said}");
    assert!(demo.empty(), "the demo leaves something behind");
}

#[test]
fn the_demo_writes_nothing_but_its_folder_which_only_its_owner_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let mut demo = Demo::start();
    let made: Vec<_> = demo.temporary.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let [folder] = made.as_slice() else { panic!("{made:?}") };
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(demo.text.contains(&folder.display().to_string()), "{}", demo.text);
    assert!(demo.home.path().read_dir().unwrap().next().is_none());
    // A terminal that is closed says so by SIGHUP.
    let (status, _, wrong) = demo.end(Signal::HUP);
    assert_eq!((status, wrong.as_str()), (Some(0), ""));
    assert!(demo.empty(), "the demo leaves something behind");
}

#[test]
fn a_demo_without_a_temporary_folder_says_so_in_a_line() {
    let output = command().arg("demo").env("TMPDIR", Path::new("/nonexistent")).output().unwrap();
    let wrong = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), wrong.lines().count()), (Some(1), 1), "{wrong}");
    assert!(wrong.starts_with("gatepost: cannot create the folder /nonexistent/gatepost-demo-"), "{wrong}");
}
