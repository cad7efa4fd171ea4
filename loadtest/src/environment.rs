//! Test environment: the agent, the proxies and the gateway of a run, and the measured rows that pass through them.

use crate::certificate::TestCertificate;
use crate::client_stream::ClientProtocol;
use crate::gatepost::{self, GatewayLauncher, anonymous_target, api_key_target, token_target};
use crate::load::CallTarget;
use crate::process::{CpuCore, ServerProcess};
use crate::proxy::{ProxyKind, RunningProxy};
use crate::proxy_settings::{self, ProxyMode, ProxySettings};
use crate::report::ReportRow;
use crate::token_issuer::TokenIssuer;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a proxy may take from its start to its first response.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How often each proxy is started, to measure the time to its first response.
const START_COUNT: usize = 3;

/// A proxy besides the gateway.
struct OtherProxy {
    name: &'static str,
    kind: ProxyKind,
    mode: ProxyMode,
}

/// The proxies besides the gateway, in the order of the tables.
const OTHER_PROXIES: [OtherProxy; 8] = [
    OtherProxy { name: crate::report::NGINX, kind: ProxyKind::Nginx, mode: ProxyMode::PassThrough },
    OtherProxy { name: "HAProxy", kind: ProxyKind::Haproxy, mode: ProxyMode::PassThrough },
    OtherProxy { name: crate::report::PINGORA, kind: ProxyKind::Pingora, mode: ProxyMode::PassThrough },
    OtherProxy { name: "hyper, bare", kind: ProxyKind::Hyper, mode: ProxyMode::PassThrough },
    OtherProxy { name: "Envoy", kind: ProxyKind::Envoy, mode: ProxyMode::PassThrough },
    OtherProxy { name: "nginx, key + limit", kind: ProxyKind::Nginx, mode: ProxyMode::Checked },
    OtherProxy { name: "HAProxy, key + limit", kind: ProxyKind::Haproxy, mode: ProxyMode::Checked },
    OtherProxy { name: "Envoy, key + limit", kind: ProxyKind::Envoy, mode: ProxyMode::Checked },
];

/// Paths of programs that are not in their usual place.
#[derive(clap::Args)]
pub(crate) struct ProgramPaths {
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
    /// Envoy's program, where it is not on the PATH.
    #[arg(long)]
    envoy: Option<PathBuf>,
}

/// What every measurement needs: the agent, the certificate, and the means to start proxies and the gateway.
pub(crate) struct TestEnvironment {
    pub(crate) settings: ProxySettings,
    pub(crate) gateway: GatewayLauncher,
    issuer: TokenIssuer,
    _agent: ServerProcess,
    _folder: TempDir,
}

impl TestEnvironment {
    /// Starts the agent, and prepares the proxies for this many concurrent connections from callers.
    pub(crate) fn start(programs: &ProgramPaths, connections: u64) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let issuer = TokenIssuer::new()?;
        let agent = start_agent(folder.path(), &issuer)?;
        let settings = ProxySettings {
            folder: folder.path().to_owned(),
            agent: agent.address,
            certificate: TestCertificate::new(folder.path())?,
            connections,
            envoy: programs.envoy.clone(),
        };
        let program = programs.gatepost.clone().map_or_else(gatepost::sibling_program, Ok)?;
        let launcher = GatewayLauncher::new(program, folder.path().to_owned(), agent.address);
        let gateway = launcher.with_certificate(&settings.certificate);
        Ok(Self { settings, gateway, issuer, _agent: agent, _folder: folder })
    }

    /// Starts a proxy. If it is not installed, prints that and returns `None`.
    pub(crate) fn start_proxy(
        &self,
        name: &str,
        kind: ProxyKind,
        mode: ProxyMode,
    ) -> anyhow::Result<Option<RunningProxy>> {
        let started = kind.start(&self.settings, mode)?;
        if started.is_none() {
            println!("{name} is not installed: its rows are missing");
        }
        Ok(started)
    }
}

/// A proxy that runs during the whole run.
pub(crate) struct MeasuredProxy {
    pub(crate) name: &'static str,
    pub(crate) process: Rc<ServerProcess>,
    /// A call through the proxy over plain HTTP/1.1.
    pub(crate) target: CallTarget,
    /// The time from the process's start to its first response, for each start.
    pub(crate) starts: Vec<Duration>,
    /// Resident memory after the first response, in KiB.
    pub(crate) at_start: u64,
}

/// The rows of a run and the proxies behind them.
pub(crate) struct RunSetup {
    /// Calls to the agent itself.
    pub(crate) direct: ReportRow,
    /// Calls through the proxies.
    pub(crate) rows: Vec<ReportRow>,
    pub(crate) proxies: Vec<MeasuredProxy>,
    /// The versions that the proxies print.
    pub(crate) versions: BTreeMap<String, String>,
    /// Declared last, so that the proxies end before the agent.
    _environment: Rc<TestEnvironment>,
}

impl RunSetup {
    /// Starts the agent, the proxies and the gateways, and keeps the rows whose names `includes_row` accepts.
    pub(crate) fn start(
        programs: &ProgramPaths,
        idle: u64,
        includes_row: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Self> {
        let environment = Rc::new(TestEnvironment::start(programs, idle + 1000)?);
        let mut setup = Self {
            direct: ReportRow::new("direct", anonymous_target(environment.settings.agent, "/invoke"), None),
            rows: Vec::new(),
            proxies: Vec::new(),
            versions: BTreeMap::new(),
            _environment: Rc::clone(&environment),
        };
        for other in OTHER_PROXIES {
            setup.add_other_proxy(&environment, other)?;
        }
        setup.add_gateways(&environment.gateway, &environment.issuer)?;
        setup.rows.retain(|row| includes_row(row.name));
        // The tables are by protocol.
        setup.rows.sort_by_key(|row| ClientProtocol::ALL.iter().position(|protocol| *protocol == row.target.protocol));
        for row in setup.rows.iter().chain([&setup.direct]) {
            row.target.try_once().with_context(|| format!("{}, {}", row.name, row.target.protocol.name()))?;
        }
        Ok(setup)
    }

    fn add_other_proxy(&mut self, environment: &TestEnvironment, other: OtherProxy) -> anyhow::Result<()> {
        let OtherProxy { name, kind, mode } = other;
        let target_through = |proxy: &RunningProxy| match mode {
            ProxyMode::PassThrough | ProxyMode::Unbuffered => anonymous_target(proxy.process.address, "/invoke"),
            ProxyMode::Checked => api_key_target(proxy.process.address, proxy_settings::API_KEY),
        };
        let start =
            || anyhow::Ok(kind.start(&environment.settings, mode)?.map(|proxy| (target_through(&proxy), proxy)));
        let Some(started) = start_until_responding(start)? else {
            println!("{name} is not installed: its rows are missing");
            return Ok(());
        };
        self.versions.extend(kind.version(&environment.settings).map(|version| (kind.name().to_owned(), version)));
        let protocols: &[ClientProtocol] =
            if mode == ProxyMode::Checked { &[ClientProtocol::Http1] } else { &ClientProtocol::ALL };
        self.add_proxy(name, started, protocols).map(drop)
    }

    /// Adds the gateway's rows: one gateway without checks, by invocation and by the agent's own API, and one with all
    /// checks.
    fn add_gateways(&mut self, launcher: &GatewayLauncher, issuer: &TokenIssuer) -> anyhow::Result<()> {
        let open = start_until_responding(|| {
            let open = launcher.start_open()?;
            Ok(Some((anonymous_target(open.process.address, "/agents/open/invoke"), open)))
        })?;
        let open = open.context("the gateway did not start")?;
        let open = self.add_proxy("Gatepost, open agent", open, &ClientProtocol::ALL)?;
        let target = anonymous_target(open.address, "/agents/open/api/invoke");
        self.rows.push(ReportRow::new("Gatepost, open agent's own API", target, Some(&open)));
        let guarded = start_until_responding(|| {
            let (guarded, key) = launcher.start_guarded()?;
            Ok(Some((api_key_target(guarded.process.address, &key), guarded)))
        })?;
        let name = "Gatepost, API key + limit + schema";
        let guarded = self.add_proxy(name, guarded.context("the gateway did not start")?, &ClientProtocol::ALL)?;
        let target = token_target(guarded.address, &launcher.sign_token(issuer)?);
        self.rows.push(ReportRow::new("Gatepost, JWT + limit + schema", target, Some(&guarded)));
        Ok(())
    }

    /// Adds a row for each protocol, and the proxy itself.
    fn add_proxy(
        &mut self,
        name: &'static str,
        started: StartedProxy,
        protocols: &[ClientProtocol],
    ) -> anyhow::Result<Rc<ServerProcess>> {
        let StartedProxy { proxy, target, starts } = started;
        let process = Rc::new(proxy.process);
        for protocol in protocols {
            let address = if *protocol == ClientProtocol::Http1 { process.address } else { proxy.tls };
            self.rows.push(ReportRow::new(name, target.over(*protocol, address), Some(&process)));
        }
        let at_start = process.resident_memory()?;
        self.proxies.push(MeasuredProxy { name, process: Rc::clone(&process), target, starts, at_start });
        Ok(process)
    }
}

/// A proxy that was started several times, of which the last start is running.
struct StartedProxy {
    proxy: RunningProxy,
    /// A call through the proxy over plain HTTP/1.1.
    target: CallTarget,
    /// The time from the process's start to its first response, for each start.
    starts: Vec<Duration>,
}

/// Starts a proxy several times, each time until it responds.
fn start_until_responding(
    start: impl Fn() -> anyhow::Result<Option<(CallTarget, RunningProxy)>>,
) -> anyhow::Result<Option<StartedProxy>> {
    let mut starts = Vec::new();
    loop {
        let started = Instant::now();
        let Some((target, proxy)) = start()? else { return Ok(None) };
        while let Err(error) = target.try_once() {
            if started.elapsed() > START_TIMEOUT {
                return Err(error);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        starts.push(started.elapsed());
        if starts.len() == START_COUNT {
            return Ok(Some(StartedProxy { proxy, target, starts }));
        }
    }
}

pub(crate) fn start_agent(folder: &Path, issuer: &TokenIssuer) -> anyhow::Result<ServerProcess> {
    let jwks = folder.join("jwks.json");
    std::fs::write(&jwks, issuer.jwks().to_string())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").arg("--jwks").arg(jwks);
    ServerProcess::start_announcing(command, CpuCore::Load)
}
