//! Arguments and configuration of HAProxy, with one thread. `no strict-limits` lets it start although it could not open
//! two files for each of the callers: an idle caller takes only one.

use crate::proxy_settings::{API_KEY, CHECKED_PATH, ListenAddresses, ProxyMode, ProxySettings, RATE_LIMIT, write_file};
use std::path::Path;
use std::process::Command;

/// Runs HAProxy in the foreground. Its log goes to its stdout, which is discarded.
pub(crate) fn add_arguments(command: &mut Command, folder: &Path, config: &str) -> anyhow::Result<()> {
    // The configuration names the table of keys by this file name.
    write_file(folder, "keys.map", &format!("{API_KEY} loadtest\n"))?;
    let conf = write_file(folder, "haproxy.cfg", config)?;
    command.arg("-q").arg("-db").arg("-C").arg(folder).arg("-f").arg(conf);
    Ok(())
}

pub(crate) fn config(settings: &ProxySettings, mode: ProxyMode, addresses: ListenAddresses) -> String {
    let ListenAddresses { plain, tls } = addresses;
    let (agent, certificate, connections) =
        (settings.agent, settings.certificate.chain_and_key.display(), settings.connections);
    let rules = match mode {
        ProxyMode::PassThrough => String::new(),
        ProxyMode::Unbuffered => "    option http-no-delay\n".to_owned(),
        ProxyMode::Checked => check_rules(),
    };
    let table = match mode {
        ProxyMode::Checked => {
            "backend callers\n    stick-table type string len 64 size 1m expire 1m store http_req_rate(1s)\n"
        }
        ProxyMode::PassThrough | ProxyMode::Unbuffered => "",
    };
    format!(
        "global
    maxconn {connections}
    nbthread 1
    no strict-limits
    log stdout format raw local0
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    timeout http-keep-alive 600s
    http-reuse always
frontend callers-in
    bind {plain} backlog 4096
    bind {tls} ssl crt {certificate} alpn h2,http/1.1 backlog 4096
{rules}    default_backend agent
backend agent
    server agent {agent} pool-purge-delay 60s
{table}"
    )
}

fn check_rules() -> String {
    format!(
        "    log global
    option httplog
    http-request return status 404 unless {{ path {CHECKED_PATH} }}
    http-request deny deny_status 401 unless {{ req.hdr(x-api-key),map_str(keys.map) -m found }}
    http-request track-sc0 req.hdr(x-api-key) table callers
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {RATE_LIMIT} }}
    http-request set-path /invoke
"
    )
}
