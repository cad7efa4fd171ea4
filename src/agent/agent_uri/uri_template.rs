//! URI templates (RFC 6570), the form in which a descriptor may list names (R157). The gateway expands none: it refuses
//! them in calls, and shows those of descriptors. Publishers write templates, so that each text is read once.

/// Returns the offset of the first expression in braces.
pub(super) fn find_expression(text: &str) -> Option<usize> {
    let mut start = 0;
    for (end, _) in text.match_indices('}') {
        // An expression contains no brace: it begins at the last one before its end.
        let offset = text.get(start..end)?.rfind('{').map(|offset| start + offset);
        let is_expression = |offset: &usize| text.get(offset + 1..end).is_some_and(is_inner_expression);
        if let Some(offset) = offset.filter(is_expression) {
            return Some(offset);
        }
        start = end + 1;
    }
    None
}

/// Returns the expression for the query, `{?city,days}`, with which a template ends, if it has no other expression.
pub fn query_expression(template: &str) -> Option<&str> {
    let expression = template.get(find_expression(template)?..)?;
    let is_last = expression.find('}')? + 1 == expression.len();
    (is_last && expression.starts_with("{?")).then_some(expression)
}

/// Returns whether `inner` is what an expression has between its braces (RFC 6570 §2.2): an operator and variables.
fn is_inner_expression(inner: &str) -> bool {
    let variables = inner.strip_prefix(|first| "+#./;?&=,!@|".contains(first)).unwrap_or(inner);
    let is_variable = |variable: &str| {
        !variable.is_empty() && variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.%:*".contains(&byte))
    };
    variables.split(',').all(is_variable)
}
