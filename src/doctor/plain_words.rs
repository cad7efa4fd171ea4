//! Messages of libraries in the words of an operator.

/// The beginnings of errors that say nothing which the rest does not.
const EMPTY_PHRASES: &[&str] = &[
    "error sending request: ",
    "client error (Connect): ",
    "client error (SendRequest): ",
    "tcp connect error: ",
    "dns error: ",
];

/// Messages of libraries, each with what it means.
const MEANINGS: &[(&str, &str)] = &[
    (
        "received corrupt message of type InvalidContentType",
        "the server does not speak TLS at this port (is it http:// or mqtt://?)",
    ),
    ("connection closed before message completed", "the server closed the connection without a reply"),
];

/// Returns a message without the phrases of libraries.
pub(super) fn in_plain_words(text: &str) -> String {
    let without = EMPTY_PHRASES.iter().fold(text.to_owned(), |text, phrase| text.replace(phrase, ""));
    MEANINGS.iter().fold(without, |text, (message, meaning)| text.replace(message, meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_libraries_say_what_they_mean() {
        let refused = "http://127.0.0.1:9/jwks: error sending request: client error (Connect): tcp connect error: \
                       Connection refused (os error 111)";
        assert_eq!(in_plain_words(refused), "http://127.0.0.1:9/jwks: Connection refused (os error 111)");
        let plain = "TLS handshake failed (received corrupt message of type InvalidContentType)";
        assert_eq!(
            in_plain_words(plain),
            "TLS handshake failed (the server does not speak TLS at this port (is it http:// or mqtt://?))"
        );
        assert_eq!(in_plain_words("the grant names no caller"), "the grant names no caller");
    }
}
