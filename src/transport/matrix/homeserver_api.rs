//! Requests to one homeserver, within its rate limits, and retried where that is safe.

use super::error_mapping;
use crate::{
    fault::Fault,
    net::{ApiClient, ApiReply, ApiRequest, FetchError, FetchLimits},
    values::{ByteSize, ConfigDuration, random_duration},
};
use http::Method;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The maximum size of a response other than that of a sync.
const MAX_RESPONSE: ByteSize = ByteSize::from_kib(8 << 10);

/// The timeout of one request, and the maximum number of attempts.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ATTEMPTS: u32 = 4;

/// The remaining time below which a call counts as timed out.
const DEADLINE_MARGIN: Duration = Duration::from_millis(20);

/// How often one call waits for the homeserver's rate limit.
const MAX_RATE_LIMIT_WAITS: u32 = 50;

/// The client of one account's homeserver.
#[derive(Debug)]
pub(super) struct HomeserverApi {
    client: ApiClient,
    /// When the homeserver's rate limit ends.
    rate_limited_until: Mutex<Option<Instant>>,
}

impl HomeserverApi {
    pub(super) fn new(client: ApiClient) -> Self {
        Self { client, rate_limited_until: Mutex::default() }
    }

    /// Returns `host` or `host:port` of the homeserver.
    pub(super) fn authority(&self) -> &str {
        self.client.authority()
    }

    /// Sends a request once.
    pub(super) async fn send(&self, request: ApiRequest<'_>, limits: FetchLimits) -> Result<ApiReply, FetchError> {
        self.client.send(request, limits).await
    }

    /// Sends an idempotent request, and retries it while the response is a rate limit or a server error.
    pub(super) async fn send_with_retry(&self, request: ApiRequest<'_>, until: Instant) -> Result<ApiReply, Fault> {
        let (mut attempts, mut rate_limit_waits) = (0, 0);
        loop {
            self.wait_for_rate_limit(until).await?;
            let remaining = until.saturating_duration_since(Instant::now()).min(REQUEST_TIMEOUT);
            if remaining.is_zero() {
                return Err(if rate_limit_waits > 0 {
                    error_mapping::rate_limited_fault(error_mapping::RETRY_SOON)
                } else {
                    error_mapping::timeout_fault()
                });
            }
            let limits = FetchLimits {
                size: MAX_RESPONSE,
                time: ConfigDuration::from_millis(remaining.as_millis().max(1) as u64),
            };
            let fault = match self.client.send(request.clone(), limits).await {
                Ok(reply) => match error_mapping::rate_limit_delay(&reply) {
                    Some(wait) => {
                        self.record_rate_limit(wait);
                        rate_limit_waits += 1;
                        if rate_limit_waits > MAX_RATE_LIMIT_WAITS {
                            return Err(error_mapping::rate_limited_fault(wait));
                        }
                        continue;
                    }
                    None if reply.status < 500 => return Ok(reply),
                    None => error_mapping::homeserver_fault("a request", &reply),
                },
                Err(error) => error_mapping::unreachable_fault(&error),
            };
            // The call's deadline ended the request, not the homeserver.
            if Instant::now() + DEADLINE_MARGIN >= until {
                return Err(error_mapping::timeout_fault());
            }
            attempts += 1;
            let pause = Duration::from_millis(100 << attempts);
            if attempts >= MAX_ATTEMPTS || Instant::now() + pause >= until {
                return Err(fault);
            }
            sleep(pause).await;
        }
    }

    /// Records the homeserver's rate limit, which applies to every call of the account.
    fn record_rate_limit(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut rate_limited_until = self.rate_limited_until.lock();
        *rate_limited_until = Some(rate_limited_until.map_or(until, |current| current.max(until)));
    }

    /// Waits while the homeserver limits the rate; fails where the limit lasts longer than the call may.
    async fn wait_for_rate_limit(&self, until: Instant) -> Result<(), Fault> {
        let limited_until = *self.rate_limited_until.lock();
        let now = Instant::now();
        match limited_until.filter(|limited_until| *limited_until > now) {
            Some(limited_until) if limited_until >= until => {
                Err(error_mapping::rate_limited_fault(limited_until - now))
            }
            Some(limited_until) => {
                // The jitter keeps the delayed calls from resuming all at once.
                sleep(limited_until - now + random_duration(Duration::from_millis(50))).await;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// A GET of the path.
pub(super) fn get_request<'a>(path: &'a [&'a str]) -> ApiRequest<'a> {
    ApiRequest { method: Method::GET, path, query: &[], body: None }
}
