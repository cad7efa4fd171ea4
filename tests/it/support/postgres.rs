//! A real PostgreSQL on a free port, in a folder of its own, ended by its process id when dropped.

use super::certs::Issued;
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A server that runs until it is dropped, with a database `postgres` and a superuser of the same name.
pub struct Postgres {
    port: u16,
    process: Child,
    folder: TempDir,
    names: usize,
}

impl Postgres {
    /// Makes a cluster and starts it.
    pub async fn start() -> Self {
        let folder = tokio::task::spawn_blocking(make).await.unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = run(folder.path(), port).await;
        Self { port, process, folder, names: 0 }
    }

    /// The address of a database of its own, made here.
    pub async fn database(&mut self) -> String {
        self.names += 1;
        let name = format!("test{}", self.names);
        self.sql("postgres", &format!("create database {name}")).await;
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// Runs statements in a database, whose name an address ends with.
    pub async fn sql(&self, database: &str, statements: &str) {
        let name = database.rsplit('/').next().unwrap();
        let address = format!("host=127.0.0.1 port={} user=postgres dbname={name}", self.port);
        let (client, connection) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await.unwrap();
        let driven = tokio::spawn(connection);
        client.batch_execute(statements).await.unwrap();
        drop(client);
        driven.await.unwrap().unwrap();
    }

    /// Makes it speak TLS, besides plain text, with this certificate.
    pub async fn secure(&self, issued: &Issued) {
        let (certificate, key) = issued.write(self.folder.path(), "server");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            let (user, group) = ids("postgres");
            chown(&key, Some(user), Some(group)).unwrap();
        }
        for (setting, path) in [("ssl_cert_file", &certificate), ("ssl_key_file", &key)] {
            self.sql("postgres", &format!("alter system set {setting} = '{}'", path.display())).await;
        }
        self.sql("postgres", "alter system set ssl = on").await;
        self.sql("postgres", "select pg_reload_conf()").await;
    }

    /// Ends the server at once, as a machine that fails would.
    pub fn stop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let id = rustix::process::Pid::from_child(&self.process);
            // Immediate shutdown: nothing is written back, and the next start recovers from the log.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::QUIT);
            let _ = self.process.wait();
        }
    }

    /// Starts it again on its port, with its data.
    pub async fn again(&mut self) {
        self.process = run(self.folder.path(), self.port).await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes a cluster.
fn make() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        let (user, group) = ids("postgres");
        chown(folder.path(), Some(user), Some(group)).unwrap();
    }
    let made = command("initdb")
        .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "-D"])
        .arg(folder.path().join("data"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
    folder
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
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let asked = command("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]).status().unwrap();
        if asked.success() {
            return process;
        }
        let ended = process.try_wait().unwrap();
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(ended.is_none() && Instant::now() < until, "PostgreSQL did not start ({ended:?}): {}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One of PostgreSQL's programs. It refuses to run as root, so root runs it as its own user.
fn command(name: &str) -> Command {
    let path = binary(name);
    if !is_root() {
        return Command::new(path);
    }
    // Replaces itself with the program, whose process id is then the child's.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(path);
    command
}

fn binary(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    places.sort();
    places.reverse();
    places.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    places.into_iter().map(|place| place.join(name)).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("{name} is missing: the Debian package postgresql (run: sudo apt-get install postgresql)")
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user and group that the package made.
fn ids(user: &str) -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let fields: Vec<&str> = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields[0] == user)
        .unwrap_or_else(|| panic!("there is no user {user}: the Debian package postgresql makes it"));
    (fields[2].parse().unwrap(), fields[3].parse().unwrap())
}
