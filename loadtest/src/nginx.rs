//! Arguments and configuration of nginx.

use crate::proxy_settings::{API_KEY, CHECKED_PATH, ListenAddresses, ProxyMode, ProxySettings, RATE_LIMIT, write_file};
use std::path::Path;
use std::process::Command;

/// Runs nginx as one process that writes nothing outside `folder`.
pub(crate) fn add_arguments(command: &mut Command, folder: &Path, config: String) -> anyhow::Result<()> {
    let conf = write_file(folder, "nginx.conf", &config)?;
    command.arg("-p").arg(folder).arg("-c").arg(conf).arg("-e").arg("stderr");
    Ok(())
}

pub(crate) fn config(settings: &ProxySettings, mode: ProxyMode, addresses: ListenAddresses, folder: &Path) -> String {
    let ListenAddresses { plain, tls } = addresses;
    let (agent, folder) = (settings.agent, folder.display());
    let (chain, key) = (settings.certificate.chain.display(), settings.certificate.key.display());
    let (http, locations) = match mode {
        ProxyMode::PassThrough | ProxyMode::Unbuffered => ("access_log off;".to_owned(), pass_through_locations()),
        ProxyMode::Checked => (check_directives(), checked_location()),
    };
    let connections = settings.connections;
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections {connections}; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    proxy_read_timeout 600s;
    ssl_certificate {chain};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    {http}
    upstream agent {{
        server {agent};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {plain} backlog=4096;
        listen {tls} ssl http2 backlog=4096;
        proxy_http_version 1.1;
        proxy_set_header Connection \"\";
{locations}    }}
}}
"
    )
}

/// Forwards calls; events without buffering; large bodies without buffering or temporary files.
fn pass_through_locations() -> String {
    "        location / { proxy_pass http://agent; }
        location /sse { proxy_pass http://agent; proxy_buffering off; }
        location /bulk {
            proxy_pass http://agent;
            client_max_body_size 0;
            proxy_request_buffering off;
            proxy_max_temp_file_size 0;
        }
"
    .to_owned()
}

fn check_directives() -> String {
    format!(
        "access_log /dev/null combined;
    map $http_x_api_key $caller {{ default \"\"; \"{API_KEY}\" loadtest; }}
    limit_req_zone $caller zone=callers:1m rate={RATE_LIMIT}r/s;"
    )
}

fn checked_location() -> String {
    format!(
        "        location {CHECKED_PATH} {{
            if ($caller = \"\") {{ return 401; }}
            limit_req zone=callers burst=100000 nodelay;
            rewrite ^ /invoke break;
            proxy_pass http://agent;
        }}
"
    )
}
