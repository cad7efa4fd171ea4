//! The names of the header fields that are stripped in any case.

/// Whether the field applies to one hop only, or is always written by the gateway itself.
pub(super) fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "content-length"
            | "host"
            | "expect"
            | "accept-encoding"
            | "forwarded"
            | "max-forwards"
            | "x-request-timeout"
    ) || name.starts_with("sec-websocket-")
}

/// Whether a caller's field reaches no agent, even if the operator lists it: it applies to one hop, is written by the
/// gateway, proves or claims an identity in a known way, or changes the request.
pub(super) fn is_never_forwarded(name: &str) -> bool {
    is_reserved(name) || is_credential(name) || is_override_or_conditional(name)
}

/// Whether the field proves, or claims, the caller's identity. Claims of proxies are as dangerous as passwords: an
/// agent may trust them.
fn is_credential(name: &str) -> bool {
    matches!(
        name,
        "authorization"
            | "proxy-authorization"
            | "proxy-authenticate"
            | "x-api-key"
            | "api-key"
            | "apikey"
            | "cookie"
            | "cookie2"
            | "dpop"
            | "x-auth-token"
            | "x-access-token"
            | "x-csrf-token"
            | "x-xsrf-token"
            | "client-cert"
            | "client-cert-chain"
            | "ssl-client-cert"
            | "ssl-client-verify"
            | "x-client-cert"
            | "x-client-dn"
            | "x-client-verify"
            | "x-real-ip"
            | "true-client-ip"
            | "cf-connecting-ip"
            | "x-client-ip"
            | "x-cluster-client-ip"
            | "remote-user"
            | "x-remote-user"
            | "x-remote-group"
            | "x-authenticated-user"
            | "x-goog-iap-jwt-assertion"
            | "x-amzn-oidc-data"
            | "x-amzn-oidc-identity"
            | "x-amzn-oidc-accesstoken"
            | "x-webauth-user"
            | "x-agent-user-id"
            | "x-amzn-bedrock-agentcore-runtime-user-id"
    ) || ["x-forwarded-", "x-ssl-", "x-auth-request-", "x-gatepost-", "x-envoy-", "x-original-forwarded-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether the field could make the agent execute another request than the one that was checked, or send a partial or
/// empty reply (conditions and ranges).
fn is_override_or_conditional(name: &str) -> bool {
    matches!(
        name,
        "x-http-method-override"
            | "x-http-method"
            | "x-method-override"
            | "x-original-url"
            | "x-rewrite-url"
            | "x-original-method"
            | "x-original-uri"
    ) || is_condition(name)
}

/// Whether the field is a condition or a range of RFC 9110 §13 and §14.
pub(super) fn is_condition(name: &str) -> bool {
    matches!(name, "range" | "if-range" | "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since")
}

/// Whether an agent's field is stripped: hop-by-hop fields, connection security, credentials and cookies (which would
/// cross from caller to caller), and fields that reveal the infrastructure behind the gateway.
pub(super) fn is_stripped_from_reply(name: &str) -> bool {
    is_reserved(name) || reveals_infrastructure(name) || is_gateway_only(name)
}

fn reveals_infrastructure(name: &str) -> bool {
    matches!(
        name,
        "server"
            | "x-powered-by"
            | "via"
            | "date"
            | "server-timing"
            | "x-runtime"
            | "x-generator"
            | "x-served-by"
            | "x-timer"
            | "x-varnish"
            | "x-cache"
            | "x-cache-hits"
            | "x-hits"
            | "x-drupal-cache"
            | "x-process-time"
            | "x-response-time"
            | "x-hostname"
            | "x-host"
            | "x-instance"
            | "x-node"
            | "x-pod"
            | "x-backend"
            | "x-backend-server"
            | "x-upstream"
            | "x-application-context"
            | "x-real-ip"
            | "x-sourcemap"
            | "sourcemap"
            | "cf-ray"
            | "cf-cache-status"
            | "x-request-id"
            | "x-correlation-id"
            | "x-stack-trace"
            | "x-exception"
            | "x-error"
            | "x-modal-function-call-id"
            | "fly-request-id"
    ) || [
        "x-aspnet",
        "x-debug",
        "x-envoy-",
        "x-amz",
        "x-azure-",
        "x-ms-",
        "x-cloud-",
        "x-vercel-",
        "x-railway-",
        "x-render-",
        "x-gatepost-",
        "x-forwarded-",
        "x-accel-",
        "x-b3-",
        "x-kong-",
        "x-backend-",
        "x-upstream-",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// Whether only the gateway may send the field to callers: cookies, challenges, rate limits, what it says of tasks,
/// replays and chains, links (which lead to its own documents and tasks), browser policies, and fields that give a response rights over the whole origin or make browsers report to others.
fn is_gateway_only(name: &str) -> bool {
    matches!(
        name,
        "set-cookie"
            | "set-cookie2"
            | "link"
            | "idempotent-replayed"
            | "x-task-id"
            | "x-delegation-chain"
            | "preference-applied"
            | "x-should-retry"
            | "www-authenticate"
            | "authentication-info"
            | "authorization"
            | "x-api-key"
            | "strict-transport-security"
            | "alt-svc"
            | "clear-site-data"
            | "refresh"
            | "nel"
            | "report-to"
            | "reporting-endpoints"
            | "public-key-pins"
            | "expect-ct"
            | "ratelimit"
            | "ratelimit-policy"
            | "accept-ranges"
            | "content-range"
            | "retry-after"
            | "location"
            | "content-location"
            | "operation-location"
            | "azure-asyncoperation"
            | "content-base"
            | "x-sendfile"
            | "x-reproxy-url"
            | "service-worker-allowed"
            | "origin-agent-cluster"
            | "origin-trial"
            | "speculation-rules"
            | "supports-loading-mode"
            | "use-as-dictionary"
            | "no-vary-search"
            | "accept-ch"
            | "critical-ch"
            | "set-login"
            | "activate-storage-access"
            | "observe-browsing-topics"
            | "permissions-policy"
            | "feature-policy"
            | "document-policy"
            | "content-security-policy-report-only"
            | "x-content-type-options"
    ) || ["proxy-", "access-control-", "attribution-reporting-", "sec-", "ratelimit-", "x-ratelimit-", "x-rate-limit-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}
