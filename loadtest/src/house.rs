//! The processes of a run, and the rows that lead through them.

use crate::gatepost::{self, Gateway, keyed, plain, signed};
use crate::load::Target;
use crate::nginx;
use crate::process::{Core, Process, free_address};
use crate::report::Row;
use crate::run::Plan;
use crate::token::Issuer;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use tempfile::TempDir;

/// The row that goes through everything with a key.
const WHOLE: &str = "Gatepost, API key + limit + schema";

pub(crate) struct House {
    /// The agent itself first, bare Pingora second: the others are compared with these.
    pub(crate) rows: Vec<Row>,
    pub(crate) streams: Vec<Row>,
    /// Whose memory is read, with what each held at its start in KiB.
    pub(crate) kept: Vec<(&'static str, Rc<Process>, u64)>,
    /// Behind the proxies, so that they end first.
    _agent: Process,
    folder: TempDir,
}

impl House {
    pub(crate) fn build(plan: &Plan) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let issuer = Issuer::new()?;
        let agent = start_agent(folder.path(), &issuer)?;
        let at = agent.address;
        let program = plan.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
        let mut house = Self {
            rows: vec![Row::new("direct", plain(at, "/invoke"), None)],
            streams: vec![Row::new("direct", plain(at, "/sse"), None)],
            kept: Vec::new(),
            _agent: agent,
            folder,
        };
        let pingora = Rc::new(start_pingora(at)?);
        house.passes("Pingora, bare", &pingora);
        if let Some(nginx) = start_nginx(house.folder(), at)? {
            house.passes("nginx", &Rc::new(nginx));
        }
        let gateway = Gateway::new(program, house.folder().to_owned(), at);
        let guarded = house.gatepost(&gateway, &issuer)?;
        for row in &house.rows {
            row.target.try_once().with_context(|| row.name)?;
        }
        for (name, process) in [("Pingora, bare", pingora), (WHOLE, guarded)] {
            let resident = process.resident()?;
            house.kept.push((name, process, resident));
        }
        Ok(house)
    }

    /// The rows of a proxy that leaves paths as they are.
    fn passes(&mut self, name: &'static str, proxy: &Rc<Process>) {
        let at = proxy.address;
        self.rows.push(Row::new(name, plain(at, "/invoke"), Some(proxy)));
        self.streams.push(Row::new(name, plain(at, "/sse"), Some(proxy)));
    }

    /// The gateway's rows: one process with nothing to check, one with everything.
    fn gatepost(&mut self, gateway: &Gateway, issuer: &Issuer) -> anyhow::Result<Rc<Process>> {
        let open = Rc::new(gateway.open()?);
        let at = open.address;
        let call = plain(at, "/agents/open/invoke");
        self.rows.push(Row::new("Gatepost, open agent", call, Some(&open)));
        let stream = plain(at, "/agents/stream/invoke");
        self.streams.push(Row::new("Gatepost", stream, Some(&open)));

        let (guarded, key) = gateway.guarded()?;
        let guarded = Rc::new(guarded);
        let call = keyed(guarded.address, &key);
        self.rows.push(Row::new(WHOLE, call, Some(&guarded)));
        let call = signed(guarded.address, &gateway.token(issuer)?);
        self.rows.push(Row::new("Gatepost, JWT + limit + schema", call, Some(&guarded)));
        Ok(guarded)
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The first row that leads through a process.
    pub(crate) fn target(&self, process: &Rc<Process>) -> anyhow::Result<&Target> {
        let of = |row: &&Row| row.process.as_ref().is_some_and(|own| Rc::ptr_eq(own, process));
        Ok(&self.rows.iter().find(of).context("a row of the process")?.target)
    }
}

pub(crate) fn start_agent(folder: &Path, issuer: &Issuer) -> anyhow::Result<Process> {
    let jwks = folder.join("jwks.json");
    std::fs::write(&jwks, issuer.jwks().to_string())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").arg("--jwks").arg(jwks);
    Process::telling(command, Core::Load)
}

fn start_pingora(upstream: SocketAddr) -> anyhow::Result<Process> {
    let listen = free_address()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["pingora", "--listen", &listen.to_string(), "--upstream", &upstream.to_string()]);
    Process::told(command, listen)
}

fn start_nginx(folder: &Path, upstream: SocketAddr) -> anyhow::Result<Option<Process>> {
    let Some(program) = nginx::program() else {
        println!("nginx is not installed: its rows are missing");
        return Ok(None);
    };
    let listen = free_address()?;
    Process::told(nginx::command(&program, folder, listen, upstream)?, listen).map(Some)
}
