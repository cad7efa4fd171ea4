//! The credential that the calls of an agent need, in words and in the lines to call it with.

use super::super::{AcceptedCredentials, CallConventions};
use crate::{
    agent::{Agent, AuthenticationMethod},
    auth::Caller,
};
use maud::{Markup, html};

/// The credential in the lines that call an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineCredential {
    /// None.
    Nothing,
    /// A header field, whose value is in an environment variable.
    Header { name: String, prefix: &'static str, variable: &'static str },
    /// A client certificate in two files.
    Certificate,
}

/// The credentials that an agent accepts.
pub(super) struct RequiredCredential<'a> {
    pub(super) credentials: &'a AcceptedCredentials,
    pub(super) conventions: &'a CallConventions,
    pub(super) agent: &'a Agent,
}

impl RequiredCredential<'_> {
    fn methods(&self) -> Vec<AuthenticationMethod> {
        self.credentials.accepted_methods(Some(self.agent))
    }

    fn is_open(&self) -> bool {
        self.agent.authentication.accepts_anonymous() && self.conventions.allows_anonymous_calls
    }

    /// Returns the credential of the lines: of the kind that the visitor has, if the agent accepts it.
    pub(super) fn of_lines(&self, visitor: &Caller, may_call: bool) -> LineCredential {
        let methods = self.methods();
        if methods.is_empty() || visitor.is_anonymous() && may_call {
            return LineCredential::Nothing;
        }
        let preferred = [visitor.method, AuthenticationMethod::ApiKey, AuthenticationMethod::Bearer];
        let method = preferred.into_iter().find(|method| methods.contains(method));
        match method.unwrap_or(AuthenticationMethod::Mtls) {
            AuthenticationMethod::ApiKey => LineCredential::Header {
                name: self.credentials.header_of(AuthenticationMethod::ApiKey).to_owned(),
                prefix: "",
                variable: "KEY",
            },
            AuthenticationMethod::Bearer => {
                LineCredential::Header { name: "Authorization".to_owned(), prefix: "Bearer ", variable: "TOKEN" }
            }
            AuthenticationMethod::Mtls => LineCredential::Certificate,
            AuthenticationMethod::Anonymous => LineCredential::Nothing,
        }
    }

    /// Says which credentials the agent accepts, and which scopes a token needs.
    pub(super) fn render(&self) -> Markup {
        let scopes = &self.agent.authentication.scopes;
        let methods = self.methods();
        html! {
            p {
                @if methods.is_empty() { "No credential." }
                @for (index, method) in methods.iter().enumerate() {
                    @if index > 0 { ", or " }
                    (self.method_words(*method))
                }
                @if !methods.is_empty() { "." }
                @if self.is_open() { " Some callers need no credential." }
            }
            @if !scopes.is_empty() && methods.iter().any(|method| method.has_scopes()) {
                p {
                    "A token needs the scopes "
                    @for (index, scope) in scopes.iter().take(50).enumerate() {
                        @if index > 0 { ", " }
                        code { (scope) }
                    }
                    "."
                }
            }
        }
    }

    fn method_words(&self, method: AuthenticationMethod) -> Markup {
        html! {
            (method.phrase())
            @match method {
                AuthenticationMethod::ApiKey => { " in the header field " code { (self.credentials.header_of(method)) } }
                AuthenticationMethod::Bearer => { " in the header field " code { "Authorization" } }
                AuthenticationMethod::Mtls => { " (mutual TLS)" }
                AuthenticationMethod::Anonymous => {}
            }
        }
    }
}
