//! Cookies of the console (RFC 6265): the session's, and that of a login in progress. Scripts read neither.

use http::{HeaderMap, HeaderValue, header};

/// A cookie of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsoleCookie {
    /// The session. `SameSite=Strict`: pages of other sites do not cause requests with it.
    Session,
    /// The login in progress. `SameSite=Lax`: the provider redirects the browser back to the gateway.
    Login,
}

impl ConsoleCookie {
    /// Returns the name. The prefix makes browsers refuse a cookie that another host or plain HTTP set.
    fn name(self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Self::Session, true) => "__Host-gatepost_session",
            (Self::Session, false) => "gatepost_session",
            (Self::Login, true) => "__Host-gatepost_login",
            (Self::Login, false) => "gatepost_login",
        }
    }

    /// Returns the field that sets the cookie, without an end of its own: the browser drops it when it closes.
    pub(super) fn set(self, value: &str, is_secure: bool) -> Option<HeaderValue> {
        self.field(value, "", is_secure)
    }

    /// Returns the field that removes the cookie.
    pub(super) fn remove(self, is_secure: bool) -> Option<HeaderValue> {
        self.field("", "; Max-Age=0", is_secure)
    }

    fn field(self, value: &str, lifetime: &str, is_secure: bool) -> Option<HeaderValue> {
        let same_site = match self {
            Self::Session => "Strict",
            Self::Login => "Lax",
        };
        let secure = if is_secure { "; Secure" } else { "" };
        let name = self.name(is_secure);
        let field = format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}{secure}{lifetime}");
        HeaderValue::try_from(field).ok()
    }

    /// Returns the value in a request; `None` where the cookie is missing or repeated.
    pub(super) fn value_in(self, headers: &HeaderMap, is_secure: bool) -> Option<&str> {
        let prefix = self.name(is_secure);
        let fields = headers.get_all(header::COOKIE).iter().filter_map(|field| field.to_str().ok());
        let pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs.filter(|(name, _)| *name == prefix).map(|(_, value)| value);
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }
}
