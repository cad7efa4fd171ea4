//! HAProxy, where it is installed, with one thread. It would refuse to start where twice as many files as it may have
//! callers cannot be opened, although an idle caller has only one: it is told not to.

use crate::proxy::{CHECKED, Fronts, KEY, LIMIT, Setting, Work, written};
use std::path::Path;
use std::process::Command;

/// In the foreground; what it logs goes to its stdout, which nobody reads.
pub(crate) fn arguments(command: &mut Command, folder: &Path, text: &str) -> anyhow::Result<()> {
    // The table of keys is a file of its own, named as the text names it.
    written(folder, "keys.map", &format!("{KEY} loadtest\n"))?;
    let conf = written(folder, "haproxy.cfg", text)?;
    command.arg("-q").arg("-db").arg("-C").arg(folder).arg("-f").arg(conf);
    Ok(())
}

pub(crate) fn text(setting: &Setting, work: Work, fronts: Fronts) -> String {
    let Fronts { plain, tls } = fronts;
    let (agent, certificate, connections) = (setting.agent, setting.certificate.both.display(), setting.connections);
    let rules = match work {
        Work::Pass => String::new(),
        Work::Prompt => "    option http-no-delay\n".to_owned(),
        Work::Check => checks(),
    };
    let table = match work {
        Work::Check => {
            "backend callers\n    stick-table type string len 64 size 1m expire 1m store http_req_rate(1s)\n"
        }
        Work::Pass | Work::Prompt => "",
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

fn checks() -> String {
    format!(
        "    log global
    option httplog
    http-request return status 404 unless {{ path {CHECKED} }}
    http-request deny deny_status 401 unless {{ req.hdr(x-api-key),map_str(keys.map) -m found }}
    http-request track-sc0 req.hdr(x-api-key) table callers
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {LIMIT} }}
    http-request set-path /invoke
"
    )
}
