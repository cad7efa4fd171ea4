//! nginx as a pass-through, where it is installed: what many people would put here instead.

use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// nginx's program, also where a plain user's PATH does not look.
pub(crate) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(PathBuf::from("/usr/sbin"));
    folders.into_iter().map(|folder| folder.join("nginx")).find(|file| file.is_file())
}

/// One process, one worker, connections kept open on both sides, nothing written outside `folder`.
pub(crate) fn command(
    program: &Path,
    folder: &Path,
    listen: SocketAddr,
    upstream: SocketAddr,
) -> anyhow::Result<Command> {
    let conf = folder.join("nginx.conf");
    std::fs::write(&conf, text(folder, listen, upstream)).context("nginx's file")?;
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c").arg(conf).arg("-e").arg("stderr");
    Ok(command)
}

fn text(folder: &Path, listen: SocketAddr, upstream: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    upstream agent {{
        server {upstream};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://agent;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
        location /sse {{
            proxy_pass http://agent;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
        }}
    }}
}}
"
    )
}
