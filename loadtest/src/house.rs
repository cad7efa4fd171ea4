//! Test environment: the agent, the proxies and the gateway of a run, and the measured rows that pass through them.

use crate::certificate::Certificate;
use crate::gatepost::{self, Gateway, keyed, plain, signed};
use crate::load::Target;
use crate::process::{Core, Process};
use crate::proxy::{self, Kind, Proxy, Setting, Work};
use crate::report::Row;
use crate::run::Plan;
use crate::token_issuer::TokenIssuer;
use crate::wire::Caller;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a proxy may take from its start to its first response.
const START: Duration = Duration::from_secs(20);
/// How often each proxy is started, to measure the time to its first response.
const STARTS: usize = 3;

/// The proxies besides the gateway, in the order of the tables.
const OTHERS: [(&str, Kind, Work); 8] = [
    (crate::report::NGINX, Kind::Nginx, Work::Pass),
    ("HAProxy", Kind::Haproxy, Work::Pass),
    (crate::report::PINGORA, Kind::Pingora, Work::Pass),
    ("hyper, bare", Kind::Hyper, Work::Pass),
    ("Envoy", Kind::Envoy, Work::Pass),
    ("nginx, key + limit", Kind::Nginx, Work::Check),
    ("HAProxy, key + limit", Kind::Haproxy, Work::Check),
    ("Envoy, key + limit", Kind::Envoy, Work::Check),
];

/// Paths of programs that are not in their usual place.
#[derive(clap::Args)]
pub(crate) struct Programs {
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
    /// Envoy's program, where it is not on the PATH.
    #[arg(long)]
    envoy: Option<PathBuf>,
}

/// What every measurement needs: the agent, the certificate, and the means to start proxies and the gateway.
pub(crate) struct Ground {
    pub(crate) settings: Setting,
    pub(crate) gateway: Gateway,
    issuer: TokenIssuer,
    _agent: Process,
    _folder: TempDir,
}

impl Ground {
    /// Starts the agent, and prepares the proxies for this many concurrent connections from callers.
    pub(crate) fn lay(programs: &Programs, connections: u64) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let issuer = TokenIssuer::new()?;
        let agent = start_agent(folder.path(), &issuer)?;
        let settings = Setting {
            folder: folder.path().to_owned(),
            agent: agent.address,
            certificate: Certificate::new(folder.path())?,
            connections,
            envoy: programs.envoy.clone(),
        };
        let program = programs.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
        let launcher = Gateway::new(program, folder.path().to_owned(), agent.address);
        let gateway = launcher.with(&settings.certificate);
        Ok(Self { settings, gateway, issuer, _agent: agent, _folder: folder })
    }

    /// Starts a proxy. If it is not installed, prints that and returns `None`.
    pub(crate) fn proxy(&self, name: &str, kind: Kind, mode: Work) -> anyhow::Result<Option<Proxy>> {
        let started = kind.start(&self.settings, mode)?;
        if started.is_none() {
            println!("{name} is not installed: its rows are missing");
        }
        Ok(started)
    }
}

/// A proxy that runs during the whole run.
pub(crate) struct Resident {
    pub(crate) name: &'static str,
    pub(crate) process: Rc<Process>,
    /// A call through the proxy over plain HTTP/1.1.
    pub(crate) target: Target,
    /// The time from the process's start to its first response, for each start.
    pub(crate) starts: Vec<Duration>,
    /// Resident memory after the first response, in KiB.
    pub(crate) at_start: u64,
}

/// The rows of a run and the proxies behind them.
pub(crate) struct House {
    /// Calls to the agent itself.
    pub(crate) direct: Row,
    /// Calls through the proxies.
    pub(crate) rows: Vec<Row>,
    pub(crate) residents: Vec<Resident>,
    /// The versions that the proxies print.
    pub(crate) versions: BTreeMap<String, String>,
    /// Declared last, so that the proxies end before the agent.
    _environment: Rc<Ground>,
}

impl House {
    pub(crate) fn build(args: &Plan, idle: u64) -> anyhow::Result<Self> {
        let environment = Rc::new(Ground::lay(&args.programs, idle + 1000)?);
        let mut setup = Self {
            direct: Row::new("direct", plain(environment.settings.agent, "/invoke"), None),
            rows: Vec::new(),
            residents: Vec::new(),
            versions: BTreeMap::new(),
            _environment: Rc::clone(&environment),
        };
        for (name, kind, mode) in OTHERS {
            setup.other(name, &environment, (kind, mode))?;
        }
        setup.gatepost(&environment.gateway, &environment.issuer)?;
        setup.rows.retain(|row| args.wants(row.name));
        // The tables are by protocol.
        setup.rows.sort_by_key(|row| Caller::ALL.iter().position(|protocol| *protocol == row.target.caller));
        for row in setup.rows.iter().chain([&setup.direct]) {
            row.target.try_once().with_context(|| format!("{}, {}", row.name, row.target.caller.name()))?;
        }
        Ok(setup)
    }

    fn other(&mut self, name: &'static str, environment: &Ground, (kind, mode): (Kind, Work)) -> anyhow::Result<()> {
        let target_through = |proxy: &Proxy| match mode {
            Work::Pass | Work::Prompt => plain(proxy.process.address, "/invoke"),
            Work::Check => keyed(proxy.process.address, proxy::API_KEY),
        };
        let start = || anyhow::Ok(kind.start(&environment.settings, mode)?.map(|proxy| (target_through(&proxy), proxy)));
        let Some((target, proxy, starts)) = settled(start)? else {
            println!("{name} is not installed: its rows are missing");
            return Ok(());
        };
        self.versions.extend(kind.version(&environment.settings).map(|version| (kind.name().to_owned(), version)));
        let protocols: &[Caller] = if mode == Work::Check { &[Caller::Plain] } else { &Caller::ALL };
        self.moves_in(name, (target, proxy, starts), protocols).map(drop)
    }

    /// Adds the gateway's rows: one gateway without checks, one with all checks.
    fn gatepost(&mut self, launcher: &Gateway, issuer: &TokenIssuer) -> anyhow::Result<()> {
        let open = settled(|| {
            let open = launcher.open()?;
            Ok(Some((plain(open.process.address, "/agents/open/invoke"), open)))
        })?;
        self.moves_in("Gatepost, open agent", open.context("the gateway did not start")?, &Caller::ALL)?;
        let guarded = settled(|| {
            let (guarded, key) = launcher.guarded()?;
            Ok(Some((keyed(guarded.process.address, &key), guarded)))
        })?;
        let name = "Gatepost, API key + limit + schema";
        let guarded = self.moves_in(name, guarded.context("the gateway did not start")?, &Caller::ALL)?;
        let target = signed(guarded.address, &launcher.token(issuer)?);
        self.rows.push(Row::new("Gatepost, JWT + limit + schema", target, Some(&guarded)));
        Ok(())
    }

    /// Adds a row for each protocol, and the proxy itself.
    fn moves_in(
        &mut self,
        name: &'static str,
        (target, proxy, starts): (Target, Proxy, Vec<Duration>),
        protocols: &[Caller],
    ) -> anyhow::Result<Rc<Process>> {
        let process = Rc::new(proxy.process);
        for protocol in protocols {
            let address = if *protocol == Caller::Plain { process.address } else { proxy.tls };
            self.rows.push(Row::new(name, target.by(*protocol, address), Some(&process)));
        }
        let at_start = process.resident()?;
        self.residents.push(Resident { name, process: Rc::clone(&process), target, starts, at_start });
        Ok(process)
    }
}

/// Starts a proxy several times, each time until it responds. Returns the last one, and the time of each start.
fn settled(
    start: impl Fn() -> anyhow::Result<Option<(Target, Proxy)>>,
) -> anyhow::Result<Option<(Target, Proxy, Vec<Duration>)>> {
    let mut starts = Vec::new();
    loop {
        let started = Instant::now();
        let Some((target, proxy)) = start()? else { return Ok(None) };
        while let Err(error) = target.try_once() {
            if started.elapsed() > START {
                return Err(error);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        starts.push(started.elapsed());
        if starts.len() == STARTS {
            return Ok(Some((target, proxy, starts)));
        }
    }
}

pub(crate) fn start_agent(folder: &Path, issuer: &TokenIssuer) -> anyhow::Result<Process> {
    let jwks = folder.join("jwks.json");
    std::fs::write(&jwks, issuer.jwks().to_string())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").arg("--jwks").arg(jwks);
    Process::telling(command, Core::Load)
}
