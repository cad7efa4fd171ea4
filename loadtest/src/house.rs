//! The processes of a run, and the rows that lead through them.

use crate::certificate::Certificate;
use crate::gatepost::{self, Gateway, keyed, plain, signed};
use crate::load::Target;
use crate::process::{Core, Process};
use crate::proxy::{self, Kind, Proxy, Setting, Work};
use crate::report::Row;
use crate::run::Plan;
use crate::token::Issuer;
use crate::wire::Caller;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a proxy may take until it answers.
const START: Duration = Duration::from_secs(20);
/// How often each is started, for the time that takes.
const STARTS: usize = 3;

/// The proxies of others, in the order of the tables.
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

/// Programs that stand elsewhere than usual.
#[derive(clap::Args)]
pub(crate) struct Programs {
    /// The gateway's program; beside this one unless given.
    #[arg(long)]
    gatepost: Option<PathBuf>,
    /// Envoy's program, where it is not on the PATH.
    #[arg(long)]
    envoy: Option<PathBuf>,
}

/// What every measurement stands on: the agent, the certificate, and how proxies and the gateway are started.
pub(crate) struct Ground {
    pub(crate) setting: Setting,
    pub(crate) gateway: Gateway,
    issuer: Issuer,
    _agent: Process,
    _folder: TempDir,
}

impl Ground {
    /// For so many connections of callers at once.
    pub(crate) fn lay(programs: &Programs, connections: u64) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let issuer = Issuer::new()?;
        let agent = start_agent(folder.path(), &issuer)?;
        let setting = Setting {
            folder: folder.path().to_owned(),
            agent: agent.address,
            certificate: Certificate::new(folder.path())?,
            connections,
            envoy: programs.envoy.clone(),
        };
        let program = programs.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
        let gateway = Gateway::new(program, folder.path().to_owned(), agent.address).with(&setting.certificate);
        Ok(Self { setting, gateway, issuer, _agent: agent, _folder: folder })
    }

    /// Another's proxy; says so where it is not installed.
    pub(crate) fn proxy(&self, name: &str, kind: Kind, work: Work) -> anyhow::Result<Option<Proxy>> {
        let started = kind.start(&self.setting, work)?;
        if started.is_none() {
            println!("{name} is not installed: its rows are missing");
        }
        Ok(started)
    }
}

/// A process that is measured.
pub(crate) struct Resident {
    pub(crate) name: &'static str,
    pub(crate) process: Rc<Process>,
    /// A plain call through it.
    pub(crate) target: Target,
    /// From its start to its first answer, each time it was started.
    pub(crate) starts: Vec<Duration>,
    /// Memory after the first answer, in KiB.
    pub(crate) at_start: u64,
}

pub(crate) struct House {
    /// The agent itself.
    pub(crate) direct: Row,
    /// What is compared with it.
    pub(crate) rows: Vec<Row>,
    pub(crate) residents: Vec<Resident>,
    /// What the proxies say of their own versions.
    pub(crate) versions: BTreeMap<String, String>,
    /// Behind the proxies, so that they end first.
    _ground: Rc<Ground>,
}

impl House {
    pub(crate) fn build(plan: &Plan, idle: u64) -> anyhow::Result<Self> {
        let ground = Rc::new(Ground::lay(&plan.programs, idle + 1000)?);
        let mut house = Self {
            direct: Row::new("direct", plain(ground.setting.agent, "/invoke"), None),
            rows: Vec::new(),
            residents: Vec::new(),
            versions: BTreeMap::new(),
            _ground: Rc::clone(&ground),
        };
        for (name, kind, work) in OTHERS {
            house.other(name, &ground, (kind, work))?;
        }
        house.gatepost(&ground.gateway, &ground.issuer)?;
        house.rows.retain(|row| plan.wants(row.name));
        // Callers of one kind stand together.
        house.rows.sort_by_key(|row| Caller::ALL.iter().position(|caller| *caller == row.target.caller));
        for row in house.rows.iter().chain([&house.direct]) {
            row.target.try_once().with_context(|| format!("{}, {}", row.name, row.target.caller.name()))?;
        }
        Ok(house)
    }

    fn other(&mut self, name: &'static str, ground: &Ground, (kind, work): (Kind, Work)) -> anyhow::Result<()> {
        let call = |proxy: &Proxy| match work {
            Work::Pass | Work::Prompt => plain(proxy.process.address, "/invoke"),
            Work::Check => keyed(proxy.process.address, proxy::KEY),
        };
        let started = settled(|| Ok(kind.start(&ground.setting, work)?.map(|proxy| (call(&proxy), proxy))))?;
        let Some((target, proxy, starts)) = started else {
            println!("{name} is not installed: its rows are missing");
            return Ok(());
        };
        self.versions.extend(kind.version(&ground.setting).map(|version| (kind.name().to_owned(), version)));
        let callers: &[Caller] = if work == Work::Check { &[Caller::Plain] } else { &Caller::ALL };
        self.moves_in(name, (target, proxy, starts), callers).map(drop)
    }

    /// The gateway's rows: one process with nothing to check, one with everything.
    fn gatepost(&mut self, gateway: &Gateway, issuer: &Issuer) -> anyhow::Result<()> {
        let started = settled(|| {
            let open = gateway.open()?;
            Ok(Some((plain(open.process.address, "/agents/open/invoke"), open)))
        })?;
        self.moves_in("Gatepost, open agent", started.context("the gateway")?, &Caller::ALL)?;
        let started = settled(|| {
            let (guarded, key) = gateway.guarded()?;
            Ok(Some((keyed(guarded.process.address, &key), guarded)))
        })?;
        let whole = "Gatepost, API key + limit + schema";
        let guarded = self.moves_in(whole, started.context("the gateway")?, &Caller::ALL)?;
        let call = signed(guarded.address, &gateway.token(issuer)?);
        self.rows.push(Row::new("Gatepost, JWT + limit + schema", call, Some(&guarded)));
        Ok(())
    }

    /// A row for each kind of caller.
    fn moves_in(
        &mut self,
        name: &'static str,
        (target, proxy, starts): (Target, Proxy, Vec<Duration>),
        callers: &[Caller],
    ) -> anyhow::Result<Rc<Process>> {
        let process = Rc::new(proxy.process);
        for caller in callers {
            let address = if *caller == Caller::Plain { process.address } else { proxy.tls };
            self.rows.push(Row::new(name, target.by(*caller, address), Some(&process)));
        }
        let (kept, at_start) = (Rc::clone(&process), process.resident()?);
        self.residents.push(Resident { name, process: kept, target, starts, at_start });
        Ok(process)
    }
}

/// Starts a proxy several times, each time until it answers; the last of them stays.
fn settled(
    start: impl Fn() -> anyhow::Result<Option<(Target, Proxy)>>,
) -> anyhow::Result<Option<(Target, Proxy, Vec<Duration>)>> {
    let mut starts = Vec::new();
    loop {
        let began = Instant::now();
        let Some((target, proxy)) = start()? else { return Ok(None) };
        while let Err(why) = target.try_once() {
            if began.elapsed() > START {
                return Err(why);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        starts.push(began.elapsed());
        if starts.len() == STARTS {
            return Ok(Some((target, proxy, starts)));
        }
    }
}

pub(crate) fn start_agent(folder: &Path, issuer: &Issuer) -> anyhow::Result<Process> {
    let jwks = folder.join("jwks.json");
    std::fs::write(&jwks, issuer.jwks().to_string())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").arg("--jwks").arg(jwks);
    Process::telling(command, Core::Load)
}
