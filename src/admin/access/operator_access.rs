//! Decides who made a request to the admin listener: by a session, or by a credential in the header fields, as callers
//! send it. The credential is verified for each request, so that a disabled key or an expired token ends a session.

use super::{
    access_config::{AdminAccessConfig, OperatorRole},
    login_at_provider::ProviderLogin,
    operator::{Operator, OperatorCredential},
    session_cookie::ConsoleCookie,
    session_table::{
        BrowserIdentity, BrowserVisit, FoundSession, Session, SessionLifetime, SessionTable, random_token,
    },
};
use crate::{
    admin::admin_state::AdminState,
    agent::escaped_caller_id,
    audit::{AuditAction, AuditEntry, AuditOutcome},
    auth::Caller,
    fault::{Fault, FaultCode},
    net::FetchClient,
    values::{Glob, Secret},
};
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::{net::IpAddr, sync::Arc};
use tokio::runtime::Handle;

/// Marks requests that a script makes without a person: they keep no session from becoming idle.
const REFRESH_HEADER: &str = "x-console-refresh";

/// What [`OperatorAccess`] is built from.
pub struct OperatorAccessSettings {
    /// `admin.access`; `None` admits whoever reaches the listener on loopback.
    pub config: Option<AdminAccessConfig>,
    /// The role without `admin.access`.
    pub role_on_loopback: OperatorRole,
    /// The client for the requests to the OpenID provider.
    pub client: FetchClient,
}

/// Who may use the admin listener.
pub struct OperatorAccess {
    pub(super) state: Arc<dyn AdminState>,
    /// The runtime of calls, where credentials are verified.
    pub(super) calls: Handle,
    is_on_loopback: bool,
    in_force: ArcSwap<AccessInForce>,
    sessions: SessionTable,
    /// The token of forms where there are no sessions.
    csrf_token: Secret,
}

/// What the configuration in force says.
pub(super) struct AccessInForce {
    mode: AccessMode,
    pub(super) login: Option<ProviderLogin>,
}

/// Changed settings that are not in force yet.
pub struct PreparedAccess(AccessInForce);

enum AccessMode {
    /// Callers with roles.
    Roles(Box<AdminAccessConfig>),
    /// Whoever reaches the listener, which is on loopback.
    Loopback(OperatorRole),
    /// Nobody: the listener is reachable from elsewhere, and `admin.access` is missing.
    Closed,
}

impl AccessInForce {
    fn build(settings: OperatorAccessSettings, is_on_loopback: bool) -> Result<Self, String> {
        let OperatorAccessSettings { config, role_on_loopback, client } = settings;
        let login = config.as_ref().and_then(|config| Some((config.login.clone()?, config.url.clone()?)));
        let login = login.map(|(login, url)| ProviderLogin::build(login, &url, client)).transpose()?;
        let mode = match config {
            Some(config) => AccessMode::Roles(Box::new(config)),
            None if is_on_loopback => AccessMode::Loopback(role_on_loopback),
            None => AccessMode::Closed,
        };
        Ok(Self { mode, login })
    }

    /// Returns whether operators have to log in.
    pub(super) fn requires_login(&self) -> bool {
        matches!(self.mode, AccessMode::Roles(_))
    }

    /// Returns whether cookies are sent over TLS only.
    pub(super) fn is_secure(&self) -> bool {
        self.config().is_some_and(AdminAccessConfig::is_secure)
    }

    /// Returns the URL of the listener, if it is configured.
    pub(super) fn url(&self) -> Option<&str> {
        self.config()?.url.as_deref()
    }

    fn config(&self) -> Option<&AdminAccessConfig> {
        match &self.mode {
            AccessMode::Roles(config) => Some(config),
            AccessMode::Loopback(_) | AccessMode::Closed => None,
        }
    }

    fn lifetime(&self) -> SessionLifetime {
        let default = AdminAccessConfig::default();
        let config = self.config().unwrap_or(&default);
        SessionLifetime { ttl: config.session_ttl.get(), idle_timeout: config.session_idle_timeout.get() }
    }

    /// Returns the highest role that a rule gives the caller.
    fn role_of(&self, caller: &Caller) -> Option<OperatorRole> {
        if caller.is_anonymous() {
            return None;
        }
        // The client's name may spell the pattern for a user of another client, so that a pattern with `*` is compared
        // with the spelling in which it cannot. No exact pattern for a user equals an id.
        let escaped_id = escaped_caller_id(&caller.id);
        let is_named = |pattern: &Glob| {
            pattern.matches(&escaped_id)
                || pattern.matches(&caller.owner_key)
                || (pattern.is_exact() && pattern.matches(&caller.id))
        };
        let rules = self.config()?.roles.iter().filter(|rule| {
            rule.callers.iter().any(is_named)
                || rule.groups.iter().any(|pattern| caller.groups.iter().any(|group| pattern.matches(group)))
        });
        rules.map(|rule| rule.role).max()
    }
}

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(super) struct RequestSource<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) address: IpAddr,
}

impl RequestSource<'_> {
    fn visit(&self) -> BrowserVisit {
        BrowserVisit { browser: self.browser(), is_refresh: self.headers.contains_key(REFRESH_HEADER) }
    }

    fn browser(&self) -> BrowserIdentity {
        let user_agent = self.headers.get(header::USER_AGENT).map_or(&[] as &[u8], HeaderValue::as_bytes);
        BrowserIdentity::new(self.address, user_agent)
    }
}

/// The operator of a request, and the token that its forms carry.
pub(super) struct IdentifiedOperator {
    pub(super) operator: Operator,
    pub(super) csrf_token: Secret,
}

/// Why there is no operator.
pub(super) enum NoOperator {
    /// No credential and no session, or one that has ended.
    Unauthenticated(Fault),
    /// A caller without a role, with its name.
    NoRole(Fault, Arc<str>),
    /// The credential cannot be checked now.
    Undecided(Fault),
    /// The listener has no operators at all.
    Closed(Fault),
}

impl NoOperator {
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Self::Unauthenticated(fault) | Self::NoRole(fault, _) | Self::Undecided(fault) | Self::Closed(fault) => {
                fault
            }
        }
    }
}

impl OperatorAccess {
    /// Creates the access to a listener.
    ///
    /// # Errors
    /// The client secret of the login cannot be loaded.
    pub fn build(
        settings: OperatorAccessSettings,
        state: Arc<dyn AdminState>,
        calls: Handle,
        is_on_loopback: bool,
    ) -> Result<Self, String> {
        let in_force = ArcSwap::from_pointee(AccessInForce::build(settings, is_on_loopback)?);
        let (sessions, csrf_token) = (SessionTable::default(), random_token());
        Ok(Self { state, calls, is_on_loopback, in_force, sessions, csrf_token })
    }

    /// Prepares changed settings.
    ///
    /// # Errors
    /// The client secret of the login cannot be loaded.
    pub fn prepare(&self, settings: OperatorAccessSettings) -> Result<PreparedAccess, String> {
        AccessInForce::build(settings, self.is_on_loopback).map(PreparedAccess)
    }

    /// Puts changed settings in force. Sessions go on, for as long as their operators have a role.
    pub fn apply(&self, prepared: PreparedAccess) {
        self.in_force.store(Arc::new(prepared.0));
    }

    /// Returns the settings in force.
    pub(super) fn in_force(&self) -> Arc<AccessInForce> {
        self.in_force.load_full()
    }

    /// Identifies the operator of a page: by its session, or by a credential in the header fields.
    pub(super) async fn identify(&self, source: RequestSource<'_>) -> Result<IdentifiedOperator, NoOperator> {
        match &self.in_force().mode {
            AccessMode::Loopback(role) => {
                let operator = Operator { name: None, role: *role, credential: None, has_session: false };
                Ok(IdentifiedOperator { operator, csrf_token: self.csrf_token.clone() })
            }
            AccessMode::Closed => Err(NoOperator::Closed(Fault::new(
                FaultCode::PermissionDenied,
                "The console is closed: its listener is not on loopback, and admin.access is not configured",
            ))),
            AccessMode::Roles(config) => match ConsoleCookie::Session.value_in(source.headers, config.is_secure()) {
                Some(token) => self.identify_by_session(token, source).await,
                None => self.identify_by_headers(source).await,
            },
        }
    }

    /// Returns the operator of a request that others may make too. A request without a credential, such as that of a probe,
    /// waits for nothing.
    pub(super) async fn recognize(&self, source: RequestSource<'_>) -> Option<Operator> {
        let in_force = self.in_force();
        let sends_credential = || {
            ConsoleCookie::Session.value_in(source.headers, in_force.is_secure()).is_some()
                || self.state.credential_headers().iter().any(|name| source.headers.contains_key(name))
        };
        if in_force.requires_login() && !sends_credential() {
            return None;
        }
        self.identify(source).await.ok().map(|identified| identified.operator)
    }

    async fn identify_by_session(
        &self,
        token: &str,
        source: RequestSource<'_>,
    ) -> Result<IdentifiedOperator, NoOperator> {
        let session = match self.sessions.find(token, &source.visit(), self.in_force().lifetime()) {
            FoundSession::Valid(session) => session,
            FoundSession::Missing => return Err(NoOperator::Unauthenticated(session_ended())),
            FoundSession::Stolen(name) => {
                tracing::warn!(operator = %name, address = %source.address, "session ended: its cookie came from another address or browser");
                let entry = AuditEntry::new(AuditAction::SessionEnded, name.to_string(), "")
                    .refused("the cookie came from another address or browser");
                self.record(entry, source.address);
                return Err(NoOperator::Unauthenticated(session_ended()));
            }
        };
        let Session { name, credential, csrf_token, .. } = session;
        match self.operator_with(Some(&credential), source.address, true).await {
            Ok(operator) if operator.name.as_ref() == Some(&name) => Ok(IdentifiedOperator { operator, csrf_token }),
            Ok(_) | Err(NoOperator::Unauthenticated(_)) => {
                self.sessions.end(token);
                Err(NoOperator::Unauthenticated(session_ended()))
            }
            Err(why) => Err(why),
        }
    }

    /// Identifies the operator by the credential in the header fields of a program.
    async fn identify_by_headers(&self, source: RequestSource<'_>) -> Result<IdentifiedOperator, NoOperator> {
        let names = self.state.credential_headers();
        let presented = names.into_iter().filter_map(|name| {
            let value = source.headers.get(&name)?.to_str().ok()?;
            Some(OperatorCredential::new(name, Secret::new(value)))
        });
        let presented: Vec<OperatorCredential> = presented.collect();
        if presented.len() > 1 {
            let message = "Several credentials were sent (send one)";
            return Err(NoOperator::Unauthenticated(Fault::new(FaultCode::InvalidInput, message)));
        }
        // Without a credential, the fault has the challenges.
        let operator = self.operator_with(presented.first(), source.address, false).await?;
        // Without a session there is no page whose forms another page could send.
        Ok(IdentifiedOperator { operator, csrf_token: self.csrf_token.clone() })
    }

    /// Verifies a credential, and returns the operator that it belongs to.
    async fn operator_with(
        &self,
        credential: Option<&OperatorCredential>,
        address: IpAddr,
        has_session: bool,
    ) -> Result<Operator, NoOperator> {
        let (mut headers, state) = (HeaderMap::new(), Arc::clone(&self.state));
        credential.into_iter().for_each(|credential| credential.add_to(&mut headers));
        // On the runtime of calls, whose connections to issuers it uses.
        let verified = self.calls.spawn(async move { state.authenticate(headers, address).await }).await;
        let failed = || Fault::new(FaultCode::Internal, "The credential could not be verified");
        let verified = verified.map_err(|_| failed()).and_then(|caller| caller);
        // Only an invalid credential ends a session: its issuer may be down for a moment.
        let caller = verified.map_err(|fault| match fault.http_status() {
            400 | 401 => NoOperator::Unauthenticated(fault),
            _ => NoOperator::Undecided(fault),
        })?;
        match self.in_force().role_of(&caller) {
            Some(role) => {
                let credential = credential.cloned();
                Ok(Operator { name: Some(Arc::clone(&caller.owner_key)), role, credential, has_session })
            }
            None => {
                let message = format!("{} has no role here (admin.access.roles)", caller.owner_key);
                let fault = Fault::new(FaultCode::PermissionDenied, message);
                Err(NoOperator::NoRole(fault, Arc::clone(&caller.owner_key)))
            }
        }
    }

    /// Starts a session for a credential, and returns the field that sets its cookie.
    ///
    /// # Errors
    /// The credential is not that of an operator.
    pub(super) async fn log_in(
        &self,
        credential: OperatorCredential,
        source: RequestSource<'_>,
    ) -> Result<HeaderValue, NoOperator> {
        let operator = self.operator_with(Some(&credential), source.address, true).await.inspect_err(|why| {
            let by_stranger = AuditEntry::by_stranger(AuditAction::OperatorLoggedIn, "");
            let entry = match why {
                NoOperator::NoRole(fault, name) => {
                    AuditEntry::new(AuditAction::OperatorLoggedIn, name.to_string(), "").refused(fault.log_message())
                }
                NoOperator::Undecided(fault) | NoOperator::Closed(fault) => by_stranger.refused(fault.log_message()),
                NoOperator::Unauthenticated(_) => by_stranger.refused("the credential is not valid"),
            };
            self.record(entry, source.address);
        })?;
        let name = operator.name.unwrap_or_default();
        let in_force = self.in_force();
        // A browser has one session.
        if let Some(previous) = ConsoleCookie::Session.value_in(source.headers, in_force.is_secure()) {
            self.sessions.end(previous);
        }
        let started = self.sessions.start(&name, credential, source.browser(), in_force.lifetime());
        let Some(token) = started else {
            let message = "Too many logins in a minute (wait, or use a session that is open)";
            return Err(NoOperator::Undecided(Fault::new(FaultCode::RateLimited, message)));
        };
        let entry = AuditEntry::new(AuditAction::OperatorLoggedIn, name.to_string(), "");
        self.record(entry.with_detail(format!("as {}", operator.role.name())), source.address);
        let cookie = ConsoleCookie::Session.set(token.expose(), self.in_force().is_secure());
        cookie.ok_or_else(|| NoOperator::Closed(Fault::new(FaultCode::Internal, "The session could not be started")))
    }

    /// Ends the session of a request, if there is one.
    pub(super) fn log_out(&self, source: RequestSource<'_>, operator: &Operator) {
        if let Some(token) = ConsoleCookie::Session.value_in(source.headers, self.in_force().is_secure()) {
            self.sessions.end(token);
            self.record(AuditEntry::new(AuditAction::SessionEnded, operator.audit_actor(), ""), source.address);
        }
    }

    /// Returns the header in which an API key is sent, if keys are accepted.
    pub(super) fn api_key_header(&self) -> Option<HeaderName> {
        self.state.api_key_header()
    }

    /// Records an entry in the background. What strangers cause without end occupies no thread.
    fn record(&self, mut entry: AuditEntry, address: IpAddr) {
        let Some(log) = self.state.audit_log() else { return };
        entry.address = Some(address);
        match entry.outcome {
            AuditOutcome::Refused => log.record_refusal(entry),
            AuditOutcome::Done => drop(self.calls.spawn_blocking(move || log.record(entry))),
        }
    }
}

fn session_ended() -> Fault {
    Fault::new(FaultCode::Unauthorized, "The session has ended (log in again)")
}
