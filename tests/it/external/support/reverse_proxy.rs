//! Real reverse proxies in front of the gateway, HAProxy and nginx, on a free port of loopback. They connect to the
//! gateway from 127.0.0.9, so that a test can trust them without trusting their clients.

use crate::support::{eventually, ports::ReservedPort};
use std::{
    fs::File,
    io::ErrorKind,
    net::TcpStream,
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// The address from which the proxies connect to the gateway.
pub const PROXY_ADDRESS: &str = "127.0.0.9";

/// A proxy that runs until it is dropped.
pub struct ReverseProxy {
    pub port: u16,
    _reservation: ReservedPort,
    folder: TempDir,
    process: Child,
}

impl Drop for ReverseProxy {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default());
        }
    }
}

impl ReverseProxy {
    /// Starts HAProxy in TCP mode in front of `gateway_port`; `server_options` belong to its `server` line.
    pub async fn haproxy(gateway_port: u16, server_options: &str) -> Self {
        let config = format!(
            "global\n  log stderr local0\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
             listen gateway\n  bind 127.0.0.1:PORT\n  server gateway 127.0.0.1:{gateway_port} source {PROXY_ADDRESS} {server_options}\n"
        );
        Self::start("haproxy", &config, |command, config| {
            command.args(["-db", "-f"]).arg(config);
        })
        .await
    }

    /// Starts nginx in front of `gateway_port`; `location_lines` belong to its only location.
    pub async fn nginx(gateway_port: u16, location_lines: &str) -> Self {
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("  {kind}_temp_path FOLDER/{kind};\n"))
            .collect();
        // One process, so that killing it leaves none behind.
        let config = format!(
            "daemon off;\nmaster_process off;\npid FOLDER/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  access_log off;\n{temporary}\
             upstream gateway {{ server 127.0.0.1:{gateway_port}; keepalive 1; }}\n  server {{\n    listen 127.0.0.1:PORT;\n\
             location / {{\n proxy_pass http://gateway;\n proxy_bind {PROXY_ADDRESS};\n proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\";\n proxy_set_header Host $http_host;\n {location_lines}\n }}\n  }}\n}}\n"
        );
        Self::start("nginx", &config, |command, config| {
            command.args(["-e", "stderr", "-c"]).arg(config);
        })
        .await
    }

    async fn start(program: &str, config: &str, arguments: impl FnOnce(&mut Command, &std::path::Path)) -> Self {
        let reservation = ReservedPort::new();
        let port = reservation.number();
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("config");
        let config = config.replace("PORT", &port.to_string()).replace("FOLDER", &folder.path().display().to_string());
        std::fs::write(&path, config).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(program);
        // Debian installs both in /usr/sbin, which is not in the PATH of ordinary users.
        command.env("PATH", format!("{}:/usr/local/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        arguments(&mut command, &path);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().unwrap_or_else(|why| panic_missing_package(program, why.kind()));
        let proxy = Self { port, _reservation: reservation, folder, process };
        eventually("the proxy listens", async || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
        proxy
    }
}

fn panic_missing_package<T>(name: &str, why: ErrorKind) -> T {
    panic!("the Debian package {name} is missing (run: sudo apt-get install {name}) [{why}]");
}
