//! `agent+matrix://` addresses (R51): an authority, then a room and a user as path segments. URL parsers reject
//! `agent+matrix://@bot:host`, so that this module has a parser of its own.

use crate::values::percent_decode;
use std::fmt;

/// Maximum length of an identifier in bytes (Matrix specification, "Common Identifier Format").
const MAX_IDENTIFIER_LEN: usize = 255;

/// The accepted forms, for error messages.
const ACCEPTED_FORMS: &str = "agent+matrix://@agent:server/!room:server, agent+matrix://@agent:server/#alias:server or \
                    agent+matrix://homeserver[:port]/!room:server/@agent:server";

/// The address of an agent on Matrix: its user, and the room in which the gateway writes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixAddress {
    homeserver: Option<Box<str>>,
    room: Option<Box<str>>,
    user: Box<str>,
}

impl MatrixAddress {
    /// Returns the homeserver that the gateway's account must be on, as `host` or `host:port`, if the address names it.
    pub fn homeserver(&self) -> Option<&str> {
        self.homeserver.as_deref()
    }

    /// Returns the room's id (`!…`) or alias (`#…`); `None` if the configuration must name the room.
    pub fn room(&self) -> Option<&str> {
        self.room.as_deref()
    }

    /// Returns the agent's own account, `@name:server`. Only messages from this account count as responses.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Parses the part after `agent+matrix://`; `!`, `#` and `@` may be written as `%21`, `%23` and `%40`.
    ///
    /// # Errors
    /// The reason, with the accepted forms.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let error = |why: &str| format!("a Matrix endpoint {why} ({ACCEPTED_FORMS})");
        let (mut homeserver, mut room, mut user) = (None, None, None);
        for (index, segment) in text.split('/').enumerate() {
            let segment =
                decode_printable(segment).ok_or_else(|| error("contains a '%' that encodes no printable character"))?;
            let is_accepted = match segment.bytes().next() {
                Some(b'@') if is_user_or_alias(&segment) => user.replace(segment).is_none(),
                Some(b'!') if is_room(&segment) => room.replace(segment).is_none(),
                Some(b'#') if is_user_or_alias(&segment) => room.replace(segment).is_none(),
                _ if index == 0 && is_server_name(&segment) => homeserver.replace(segment).is_none(),
                _ => false,
            };
            if !is_accepted {
                return Err(error("may name only a homeserver, one room and one user"));
            }
        }
        let user = user.ok_or_else(|| error("must name the agent's own account"))?;
        Ok(Self { homeserver: homeserver.map(Into::into), room: room.map(Into::into), user: user.into() })
    }

    /// Returns whether `text` is a room id or a room alias.
    pub fn is_room_id(text: &str) -> bool {
        match text.bytes().next() {
            Some(b'!') => is_room(text),
            Some(b'#') => is_user_or_alias(text),
            _ => false,
        }
    }
}

impl fmt::Display for MatrixAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = match &self.homeserver {
            Some(server) => [Some(&**server), self.room(), Some(self.user())],
            None => [Some(self.user()), self.room(), None],
        };
        formatter.write_str("agent+matrix://")?;
        for (index, part) in parts.into_iter().flatten().enumerate() {
            write!(formatter, "{}{part}", if index == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

/// Returns whether `text` is a sigil, a local part, a colon and a server name.
fn is_user_or_alias(text: &str) -> bool {
    let Some((local, server)) = text.get(1..).and_then(|text| text.split_once(':')) else { return false };
    text.len() <= MAX_IDENTIFIER_LEN && !local.is_empty() && is_localpart(local) && is_server_name(server)
}

/// Returns whether `text` is a room id, which has no server part since room version 12.
fn is_room(text: &str) -> bool {
    (2..=MAX_IDENTIFIER_LEN).contains(&text.len()) && text.get(1..).is_some_and(is_localpart)
}

fn is_server_name(text: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b);
    let port = text.rsplit_once(':').filter(|_| !text.ends_with(']'));
    let has_valid_port = port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
    !text.is_empty() && text.len() <= 230 && text.bytes().all(is_allowed) && !text.starts_with(':') && has_valid_port
}

fn is_localpart(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic() && !b"/?#@\\\"%".contains(&b))
}

/// Decodes a segment; `None` if it has an escape of anything but a printable ASCII character.
fn decode_printable(segment: &str) -> Option<String> {
    let is_printable = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
    percent_decode(segment).filter(|text| !segment.contains('%') || is_printable(text))
}
