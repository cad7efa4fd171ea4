//! URI templates (RFC 6570), the form in which a descriptor may list names (R157). The gateway expands none: it refuses
//! them in calls, and shows those of descriptors.

/// Returns the offset of the first expression in braces.
pub(super) fn find_expression(text: &str) -> Option<usize> {
    text.match_indices('{').map(|(offset, _)| offset).find(|offset| expression_len(text, *offset).is_some())
}

/// Returns the expression for the query, `{?city,days}`, with which a template ends, if it has no other expression.
pub fn query_expression(template: &str) -> Option<&str> {
    let offset = find_expression(template)?;
    let expression = template.get(offset..)?;
    let is_last = expression_len(template, offset)? == expression.len();
    (is_last && expression.starts_with("{?")).then_some(expression)
}

/// Returns the length of the expression at `offset` (RFC 6570 §2.2): braces around an operator and variables.
fn expression_len(text: &str, offset: usize) -> Option<usize> {
    let expression = text.get(offset..)?;
    let inner = expression.strip_prefix('{')?.split_once('}')?.0;
    let variables = inner.strip_prefix(|first| "+#./;?&=,!@|".contains(first)).unwrap_or(inner);
    let is_variable = |variable: &str| {
        !variable.is_empty() && variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.%:*".contains(&byte))
    };
    variables.split(',').all(is_variable).then_some(inner.len() + 2)
}
