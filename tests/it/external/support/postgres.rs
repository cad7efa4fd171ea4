//! A real PostgreSQL server on a free port, with its data in a temporary folder. It is stopped when it is dropped.

use crate::support::{certs::IssuedCertificate, ports::ReservedPort};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A server that runs until it is dropped, with a database `postgres` and a superuser of the same name.
pub struct Postgres {
    port: ReservedPort,
    process: Child,
    folder: TempDir,
    databases: usize,
}

impl Postgres {
    /// Creates a cluster and starts it.
    pub async fn start() -> Self {
        let folder = tokio::task::spawn_blocking(create_cluster).await.unwrap();
        let port = ReservedPort::new();
        let process = run(folder.path(), port.number()).await;
        Self { port, process, folder, databases: 0 }
    }

    /// The folder with the server's data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a database, and returns its URL.
    pub async fn create_database(&mut self) -> String {
        self.databases += 1;
        let name = format!("test{}", self.databases);
        self.run_sql("postgres", &format!("create database {name}")).await;
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port.number())
    }

    /// Runs statements in the database with this name or URL.
    pub async fn run_sql(&self, database: &str, statements: &str) {
        let name = database.rsplit('/').next().unwrap();
        let address = format!("host=127.0.0.1 port={} user=postgres dbname={name}", self.port.number());
        let (client, connection) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.batch_execute(statements).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
    }

    /// Returns the number that a query of the database with this name or URL selects; none if a table is missing.
    pub async fn query_number(&self, database: &str, query: &str) -> Option<i64> {
        let name = database.rsplit('/').next().unwrap();
        let address = format!("host=127.0.0.1 port={} user=postgres dbname={name}", self.port.number());
        let (client, connection) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let number = client.query_one(query, &[]).await.ok().map(|row| row.get(0));
        drop(client);
        connection.await.unwrap().unwrap();
        number
    }

    /// Enables TLS with this certificate, besides plain text.
    pub async fn enable_tls(&self, issued: &IssuedCertificate) {
        let (certificate, key) = issued.write(self.folder.path(), "server");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            let (user, group) = ids("postgres");
            chown(&key, Some(user), Some(group)).unwrap();
        }
        for (setting, path) in [("ssl_cert_file", &certificate), ("ssl_key_file", &key)] {
            self.run_sql("postgres", &format!("alter system set {setting} = '{}'", path.display())).await;
        }
        self.run_sql("postgres", "alter system set ssl = on").await;
        self.run_sql("postgres", "select pg_reload_conf()").await;
    }

    /// Stops the server at once, like a crash of its machine.
    pub fn stop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let id = rustix::process::Pid::from_child(&self.process);
            // SIGQUIT is an immediate shutdown: the next start recovers from the write-ahead log.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::QUIT);
            // A paused server does not notice it.
            self.resume();
            let _ = self.process.wait();
        }
    }

    /// Makes the server and the processes of its connections hang: they keep the connections and do not reply.
    pub fn pause(&self) {
        self.signal_all(rustix::process::Signal::STOP);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.signal_all(rustix::process::Signal::CONT);
    }

    /// The server first, which starts the other processes.
    fn signal_all(&self, signal: rustix::process::Signal) {
        let server = self.process.id();
        for id in std::iter::once(server).chain(children_of(server)) {
            let id = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
            // A process may have ended meanwhile.
            let _ = rustix::process::kill_process(id, signal);
        }
    }

    /// Restarts the server on its port, with its data.
    pub async fn restart(&mut self) {
        self.process = run(self.folder.path(), self.port.number()).await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

fn create_cluster() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        let (user, group) = ids("postgres");
        chown(folder.path(), Some(user), Some(group)).unwrap();
    }
    let output = command("initdb")
        .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "-D"])
        .arg(folder.path().join("data"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |id: &u32| {
        // The name in parentheses may contain spaces; the state and the parent's id follow it.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(1).and_then(|id| id.parse().ok()) == Some(parent)
    };
    ids.filter(is_child).collect()
}

async fn run(folder: &Path, port: u16) -> Child {
    let mut process = command("postgres")
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=32MB", "-k"])
        .arg(folder)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut probe = command("pg_isready");
        // The user `postgres` may not read the folder of the repository.
        probe.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]).current_dir(folder);
        let ready = probe.status().unwrap();
        if ready.success() {
            return process;
        }
        let exit_status = process.try_wait().unwrap();
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        let waiting = exit_status.is_none() && Instant::now() < deadline;
        assert!(waiting, "PostgreSQL did not start ({exit_status:?}): {}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A program of PostgreSQL. PostgreSQL refuses to run as root, so root runs it as the user `postgres`.
fn command(name: &str) -> Command {
    let path = binary(name);
    if !is_root() {
        return Command::new(path);
    }
    // setpriv executes the program in its own process, so the child's process id is the program's.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(path);
    command
}

fn binary(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("{name} is missing: the Debian package postgresql (run: sudo apt-get install postgresql)")
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The ids of the user and its group.
fn ids(user: &str) -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let fields: Vec<&str> = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields[0] == user)
        .unwrap_or_else(|| panic!("there is no user {user}: the Debian package postgresql creates it"));
    (fields[2].parse().unwrap(), fields[3].parse().unwrap())
}
