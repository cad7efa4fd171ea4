//! The steps that decide about a call, in their order.

use crate::auth::AccessRule;

/// Defines the steps, in the order in which a call takes them.
macro_rules! decision_steps {
    ($($step:ident $name:literal $doc:literal;)*) => {
        /// A step that decides about a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum DecisionStep { $(#[doc = $doc] $step,)* }

        impl DecisionStep {
            /// All steps, in the order in which a call takes them.
            pub const ALL: &'static [Self] = &[$(Self::$step),*];

            /// Returns the name of the step in explanations.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$step => $name,)* }
            }
        }
    };
}

decision_steps! {
    RequestHead "request_head" "The head of the request is valid.";
    AddressLimit "address_limit" "The address of the client is within its rate.";
    Path "path" "Method and path are those of a resource.";
    Authentication "authentication" "A credential authenticates the caller, and is of a kind that the agent accepts.";
    AgentLookup "agent_lookup" "The agent exists.";
    Authorization "authorization" "Grants, denials and scopes allow the caller to call the agent.";
    LoadShedding "load_shedding" "The gateway does not shed calls of the caller's tier.";
    WebPage "web_page" "The request does not come from a web page that may not call.";
    AgentStatus "agent_status" "The agent is active.";
    RateLimits "rate_limits" "The caller and the agent are within their rates and quotas.";
    RequestFields "request_fields" "Session, delegation chain and idempotency key are valid.";
    Operation "operation" "The agent has the operation that the path or a header names.";
    Version "version" "The agent has the version that the caller asks for.";
    ResponseFormat "response_format" "The agent answers in a media type that the caller accepts.";
    Deadline "deadline" "The timeout that the caller asks for is valid.";
    Method "method" "The agent accepts calls with this method.";
    Input "input" "The body satisfies the contract.";
    Task "task" "The caller's wishes for a task are valid.";
    Query "query" "The agent takes the query.";
    IdempotencyKey "idempotency_key" "The idempotency key is new, or belongs to an equal call.";
    Concurrency "concurrency" "The agent has a free slot for the caller.";
    Agent "agent" "An endpoint of the agent takes the call, and answers.";
    OwnResource "own_resource" "The gateway answers the request itself.";
}

impl DecisionStep {
    /// Returns the step that a refused access belongs to.
    pub const fn of_access(access: AccessRule) -> Self {
        match access {
            AccessRule::Credential | AccessRule::CredentialKind => Self::Authentication,
            AccessRule::NoAgent => Self::AgentLookup,
            AccessRule::NoGrant | AccessRule::Grant(_) | AccessRule::Denial(_) | AccessRule::Scopes => {
                Self::Authorization
            }
        }
    }
}
