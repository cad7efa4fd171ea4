//! The failures that a call can have, from the table of codes.

use super::super::CallConventions;
use crate::fault::{Blame, FaultCode};
use maud::{Markup, html};

/// Returns the table of the codes that a call can get.
pub(super) fn render_fault_table(conventions: &CallConventions) -> Markup {
    let codes = FaultCode::ALL.iter().filter(|code| is_possible(**code, conventions));
    html! {
        .table-scroll tabindex="0" {
            table {
                caption { "A failed call has a JSON body with " code { "error.code" } ", " code { "error.message" } " and " code { "error.request_id" } "." }
                thead { tr { th scope="col" { "Code" } th scope="col" { "Status" } th scope="col" { "Meaning" } th scope="col" { "Retry" } } }
                tbody {
                    @for code in codes {
                        @let row = code.row();
                        tr {
                            th scope="row" { code { (row.name) } }
                            td { (row.status) @for other in row.other_statuses { ", " (other) } }
                            td { (row.title) }
                            td { (retry_advice(*code)) }
                        }
                    }
                }
            }
        }
    }
}

fn is_possible(code: FaultCode, conventions: &CallConventions) -> bool {
    match code {
        // Only writes of documents have preconditions.
        FaultCode::PreconditionFailed => false,
        FaultCode::Gone => conventions.tasks.is_some(),
        FaultCode::IdempotencyMismatch => !conventions.idempotency_ttl.is_zero(),
        _ => true,
    }
}

fn retry_advice(code: FaultCode) -> &'static str {
    let row = code.row();
    match row.blame {
        _ if row.retryable => "yes, after the time in Retry-After, or with a growing pause",
        Blame::Caller => "no: change the call first",
        Blame::Agent => "no: the agent may have done the work",
        Blame::Gateway => "no: tell the operator the id of the request",
    }
}
