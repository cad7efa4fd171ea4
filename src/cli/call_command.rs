//! `gatepost call`: calls one agent by its name or URL over any transport and streams its response to stdout. The
//! command runs no gateway; the user who typed it authorises the call.

use super::resolve_command::{CommandError, CommandSettings, ResolutionArgs, parse_name, write_stdout};
use crate::{
    agent::Agent,
    app,
    transport::{
        Admission, HeaderMutations, RequestBody, UpstreamCall, UpstreamClient, UpstreamCredential, UpstreamReply,
        UpstreamSet,
    },
    values::{Glob, SecretRef, json},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::json;
use std::{io::Read as _, process::ExitCode, sync::Arc};
use tokio::time::Instant;

/// Maximum size of a body that is read from a file or from stdin.
const MAX_BODY_LEN: u64 = 64 << 20;

/// `gatepost call`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the agent answered; 1 it failed or could not be reached; 2 the command line is wrong."
)]
pub struct CallArgs {
    /// The agent: agent://host/path, agent+https://…, or an http(s) URL.
    name: String,
    /// The input as JSON, @FILE, or - for stdin; sent with POST. Without it, the name's query is sent with GET.
    #[arg(short, long)]
    data: Option<String>,
    /// A request header, as 'Name: value'; may be repeated.
    #[arg(short = 'H', long)]
    header: Vec<String>,
    /// The operation, sent in X-Operation.
    #[arg(long)]
    operation: Option<String>,
    /// An API key for the resolved agent, sent in X-API-Key: env:NAME or file:PATH.
    #[arg(long)]
    key: Option<SecretRef>,
    /// A bearer token for the resolved agent, sent in Authorization: env:NAME or file:PATH.
    #[arg(long, conflicts_with = "key")]
    bearer: Option<SecretRef>,
    /// Request a stream of events.
    #[arg(long)]
    stream: bool,
    #[command(flatten)]
    reaching: ResolutionArgs,
}

/// The admission of a call that the user typed.
struct CommandLineAdmission {
    route: UpstreamSet,
    deadline: Instant,
}

impl Admission for CommandLineAdmission {
    fn upstream_set(&self) -> &UpstreamSet {
        &self.route
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Calls the agent, prints the response, and returns the exit code.
pub fn call(args: &CallArgs) -> ExitCode {
    let ran = prepare_call(args).and_then(|prepared| {
        let runtime = app::build_runtime().map_err(|why| CommandError::Failed(why.to_string()))?;
        let called = runtime.block_on(prepared.call(args));
        runtime.shutdown_background();
        called
    });
    ran.map_or_else(CommandError::report, |()| ExitCode::SUCCESS)
}

/// A call whose arguments have been parsed.
struct PreparedCall {
    body: Option<Bytes>,
    headers: Vec<(HeaderName, HeaderValue)>,
    settings: CommandSettings,
}

fn prepare_call(args: &CallArgs) -> Result<PreparedCall, CommandError> {
    let local_schemes = ["http://", "https://", "agent+http://", "agent+https://"];
    let own = local_schemes.iter().any(|scheme| args.name.starts_with(scheme));
    let mut means = args.reaching.load_settings(own)?;
    if let Some(socket) = args.name.strip_prefix("agent+unix://") {
        // A socket path on the command line is allowed explicitly by the user.
        means.network.allowed_sockets.extend(socket.split('#').next().unwrap_or_default().parse::<Glob>());
    }
    let shown = args.key.as_ref().map(|key| ("X-API-Key", key));
    let shown = shown.or(args.bearer.as_ref().map(|token| ("Authorization", token)));
    means.agent_settings.credential = shown.map(|(header, value)| UpstreamCredential {
        header: header.to_owned(),
        scheme: None,
        value: value.clone(),
    });
    let fields = args.header.iter().map(|text| parse_header(text)).collect::<Result<_, _>>()?;
    Ok(PreparedCall { body: args.data.as_deref().map(read_input).transpose()?, headers: fields, settings: means })
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), CommandError> {
    let read = text.split_once(':').and_then(|(name, value)| {
        Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, HeaderValue::from_str(value.trim()).ok()?))
    });
    // The message does not repeat the text, which may contain a secret.
    read.ok_or_else(|| CommandError::Usage("--header is malformed (write 'Name: value')".to_owned()))
}

/// Reads the input: JSON from the command line, a file or stdin.
fn read_input(data: &str) -> Result<Bytes, CommandError> {
    let mut bytes = Vec::new();
    let read = match data.strip_prefix('@') {
        Some(path) => std::fs::File::open(path).and_then(|file| file.take(MAX_BODY_LEN + 1).read_to_end(&mut bytes)),
        None if data == "-" => std::io::stdin().lock().take(MAX_BODY_LEN + 1).read_to_end(&mut bytes),
        None => {
            bytes.extend_from_slice(data.as_bytes());
            Ok(bytes.len())
        }
    };
    read.map_err(|why| CommandError::Usage(format!("--data cannot be read: {why}")))?;
    if bytes.len() as u64 > MAX_BODY_LEN {
        return Err(CommandError::Usage("--data is too large (at most 64MiB)".to_owned()));
    }
    json::parse(&bytes, json::MAX_DEPTH)
        .map_err(|why| CommandError::Usage(format!("--data is not valid JSON: {why}")))?;
    Ok(bytes.into())
}

impl PreparedCall {
    async fn call(self, args: &CallArgs) -> Result<(), CommandError> {
        let (endpoint, operation, version) = self.resolve_target(args).await?;
        let Self { body, headers: fields, settings: means } = self;
        let document = json!({"id": "agent", "name": "agent", "endpoint": endpoint});
        let agent = Agent::from_document(&document, [0; 32]).map_err(|whys| CommandError::Failed(whys.join("\n")))?;
        let transport = UpstreamClient::new(Arc::new(means.network.policy()));
        transport.set_local_runtimes(means.local);
        let route = transport
            .compile_upstream_set(&agent, &means.agent_settings)
            .map_err(|whys| CommandError::Failed(whys.join("\n")))?;
        let deadline = Instant::now() + route.timeouts().total;
        let mut headers = HeaderMap::new();
        let accept = if args.stream {
            "text/event-stream, application/x-ndjson, */*;q=0.5"
        } else {
            "application/json, */*;q=0.5"
        };
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let said = [("x-operation", &operation), ("x-agent-version", &version)];
        let said = said.into_iter().filter_map(|(name, value)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(value.as_deref()?).ok()?))
        });
        let fields: Vec<_> = said.chain(fields).collect();
        let passage = HeaderMutations { set: &fields, ..HeaderMutations::default() };
        let id = uuid::Uuid::now_v7().simple().to_string();
        // R54: POST with a payload, GET without.
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let body = body.map_or(RequestBody::Empty, RequestBody::from);
        let operation = operation.as_deref().unwrap_or_default();
        let request = UpstreamCall {
            id: &id,
            operation,
            method,
            path: None,
            headers: &headers,
            body,
            header_mutations: passage,
            instruction: None,
        };
        let typed = CommandLineAdmission { route, deadline };
        let reply = transport.call(&typed, request).await.map_err(|fault| CommandError::Failed(fault.to_string()))?;
        print_reply(reply).await
    }

    /// Returns the endpoint, operation and version of the call; resolves the name if necessary.
    async fn resolve_target(&self, args: &CallArgs) -> Result<(String, Option<String>, Option<String>), CommandError> {
        let reaching = &args.reaching;
        if args.name.starts_with("http://") || args.name.starts_with("https://") {
            return Ok((args.name.clone(), args.operation.clone(), reaching.version.clone()));
        }
        let resolved = reaching.resolve(&self.settings, &parse_name(&args.name)?).await?;
        reaching.print_trace(&resolved);
        let asked = reaching.version.as_ref();
        let version = asked.map(|asked| resolved.version.clone().unwrap_or_else(|| asked.clone()));
        Ok((resolved.endpoint, args.operation.clone().or(resolved.operation), version))
    }
}

/// Streams the body to stdout. An error response is printed too.
async fn print_reply(mut reply: UpstreamReply) -> Result<(), CommandError> {
    let mut last = b'\n';
    while let Some(piece) = reply.body.next_chunk().await {
        let piece = piece.map_err(|fault| CommandError::Failed(format!("the response was truncated: {fault}")))?;
        last = piece.last().copied().unwrap_or(last);
        if !write_stdout(&piece)? {
            return Ok(());
        }
    }
    if last != b'\n' {
        write_stdout(b"\n")?;
    }
    match reply.status.is_success() {
        true => Ok(()),
        false => Err(CommandError::Failed(format!("the agent returned {}", reply.status))),
    }
}
