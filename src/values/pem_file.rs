//! PEM files (RFC 7468) and their mistakes. The errors of PEM parsers repeat the line at which they stop, and a private
//! key without line breaks is one line: a problem here names the place and the kind of mistake, never text of the file.

use rustls_pki_types::{
    PrivateKeyDer,
    pem::{Error as PemError, PemObject},
};
use std::{io::Read as _, path::Path};

/// The longest PEM file that is read. Revocation lists of large authorities have some MiB.
const MAX_PEM_BYTES: u64 = 64 << 20;

/// The header of an encrypted key in the older form (RFC 1421 §4.6.1.1).
const ENCRYPTED_HEADER: &str = "Proc-Type: 4,ENCRYPTED";
const ENCRYPTED: &str = "its key is encrypted: write it without a passphrase with `openssl pkey`";

/// What a PEM file is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemContent {
    /// Certificates, or a chain of them.
    Certificates,
    /// Certificate revocation lists.
    RevocationLists,
    /// One private key.
    PrivateKey,
}

impl PemContent {
    /// The content as the object of "cannot be read as".
    const fn name(self) -> &'static str {
        match self {
            Self::Certificates => "certificates",
            Self::RevocationLists => "revocation lists",
            Self::PrivateKey => "a private key",
        }
    }

    const fn absent(self) -> &'static str {
        match self {
            Self::Certificates => "no certificate",
            Self::RevocationLists => "no revocation list",
            Self::PrivateKey => "no private key",
        }
    }

    /// The type of `openssl` that converts the content from DER.
    const fn conversion(self) -> &'static str {
        match self {
            Self::Certificates => "openssl x509 -inform der",
            Self::RevocationLists => "openssl crl -inform der",
            Self::PrivateKey => "openssl pkey -inform der",
        }
    }
}

/// Reads the certificates or revocation lists of a PEM file; a file without any is a problem.
///
/// # Errors
/// What is wrong with the file, without any of its text.
pub fn read_pem_file<T: PemObject>(path: &Path, content: PemContent) -> Result<Vec<T>, String> {
    parse_pem(path, &read_bounded(path, content)?, content)
}

/// Parses the certificates or revocation lists that a PEM file has; none is a problem.
///
/// # Errors
/// As [`read_pem_file`].
pub fn parse_pem<T: PemObject>(path: &Path, bytes: &[u8], content: PemContent) -> Result<Vec<T>, String> {
    let items: Result<Vec<T>, PemError> = T::pem_slice_iter(bytes).collect();
    match items {
        Ok(items) if !items.is_empty() => Ok(items),
        Ok(_) => Err(unreadable(path, content, &pem_mistake(bytes, content, &PemError::NoItemsFound))),
        Err(error) => Err(unreadable(path, content, &pem_mistake(bytes, content, &error))),
    }
}

/// Reads the first private key of a PEM file.
///
/// # Errors
/// What is wrong with the file, without any of its text.
pub fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = read_bounded(path, PemContent::PrivateKey)?;
    parse_private_key_of(path, &bytes)
}

/// Parses the first private key that a PEM file has.
///
/// # Errors
/// As [`read_private_key`].
pub fn parse_private_key_of(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    parse_private_key(bytes).map_err(|mistake| unreadable(path, PemContent::PrivateKey, &mistake))
}

/// Parses the first private key of a PEM text.
///
/// # Errors
/// The kind of mistake, without any of the text.
pub fn parse_private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    if memchr::memmem::find(pem, ENCRYPTED_HEADER.as_bytes()).is_some() {
        // The parser takes the ciphertext for the key.
        return Err(ENCRYPTED.to_owned());
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| pem_mistake(pem, PemContent::PrivateKey, &error))
}

fn read_bounded(path: &Path, content: PemContent) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| unreadable(path, content, &error.to_string()))?;
    if bytes.len() as u64 > MAX_PEM_BYTES {
        return Err(unreadable(path, content, &format!("it is longer than {} MiB", MAX_PEM_BYTES >> 20)));
    }
    Ok(bytes)
}

fn unreadable(path: &Path, content: PemContent, mistake: &str) -> String {
    format!("{} cannot be read as {} ({mistake})", path.display(), content.name())
}

/// Says why `bytes` are not PEM with `content`. Of `error` only the variant counts: its fields have text of the input.
fn pem_mistake(bytes: &[u8], content: PemContent, error: &PemError) -> String {
    let has = |text: &str| memchr::memmem::find(bytes, text.as_bytes()).is_some();
    let has_begin = has("-----BEGIN");
    if bytes.is_empty() {
        return "it is empty".to_owned();
    }
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        return "it begins with a byte-order mark: save it as UTF-8 without one".to_owned();
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return "it is UTF-16: save it as ASCII".to_owned();
    }
    if bytes.starts_with(&[0x30]) && !has_begin {
        return format!("it is DER or PKCS#12, and PEM is required: convert it with `{}`", content.conversion());
    }
    if has_begin && (has("\\n") || has("\\r")) {
        return "its line breaks are written as \\n, two characters: write line breaks".to_owned();
    }
    if has("-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(ENCRYPTED_HEADER) {
        return ENCRYPTED.to_owned();
    }
    if has("-----BEGIN OPENSSH PRIVATE KEY-----") {
        return "its key has OpenSSH's format: convert it to PEM with `ssh-keygen -p -m pem`".to_owned();
    }
    if matches!(error, PemError::NoItemsFound) && has_begin {
        return other_content(bytes, content);
    }
    if has_begin && !memchr::memmem::find_iter(bytes, b"-----BEGIN").any(|at| begins_on_whole_line(bytes, at)) {
        return "its line breaks are missing: BEGIN, END and the text between are lines of their own".to_owned();
    }
    match error {
        PemError::MissingSectionEnd { .. } => "a line -----END …----- is missing".to_owned(),
        PemError::IllegalSectionStart { .. } => "a line -----BEGIN …----- is malformed".to_owned(),
        PemError::Base64Decode(_) => "the text between BEGIN and END is not Base64".to_owned(),
        PemError::SectionTooLarge => "a section is too long".to_owned(),
        PemError::Io(error) => error.kind().to_string(),
        _ => "it has no line -----BEGIN …-----, and PEM is required".to_owned(),
    }
}

/// Names what a PEM file has in place of `content`, by the labels that are known.
fn other_content(bytes: &[u8], content: PemContent) -> String {
    let has = |text: &str| memchr::memmem::find(bytes, text.as_bytes()).is_some();
    let found = [
        ("PRIVATE KEY-----", "a private key"),
        ("-----BEGIN CERTIFICATE-----", "a certificate"),
        ("-----BEGIN CERTIFICATE REQUEST-----", "a certificate request"),
        ("-----BEGIN X509 CRL-----", "a revocation list"),
        ("PUBLIC KEY-----", "a public key"),
    ];
    let absent = content.absent();
    match found.into_iter().find(|(label, name)| has(label) && *name != content.name()) {
        Some((_, name)) => format!("it has {name} and {absent} in PEM"),
        None => format!("it has {absent} in PEM"),
    }
}

/// Returns whether the line at `start` has nothing behind its label.
fn begins_on_whole_line(bytes: &[u8], start: usize) -> bool {
    let line = bytes.get(start..).unwrap_or_default();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let label = line.strip_prefix(b"-----BEGIN").unwrap_or_default().trim_ascii_end();
    label.strip_suffix(b"-----").is_some_and(|label| memchr::memmem::find(label, b"-----").is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_pki_types::CertificateDer;

    /// The Base64 of a key; the tests need no real one.
    const BODY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgSecretSecretSecretSecretSecretSecretSecr";

    fn pem(label: &str) -> String {
        format!("-----BEGIN {label}-----\n{BODY}\n-----END {label}-----\n")
    }

    fn mistake(bytes: &[u8]) -> String {
        parse_private_key(bytes).unwrap_err()
    }

    #[test]
    fn a_mistake_in_a_key_is_named_by_its_kind_and_repeats_no_text_of_it() {
        let key = pem("PRIVATE KEY");
        let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(key.encode_utf16().flat_map(u16::to_le_bytes)).collect();
        let cases: Vec<(Vec<u8>, &str)> = vec![
            (key.replace('\n', "\\n").into(), "written as \\n"),
            (key.replace('\n', "\\r\\n").into(), "written as \\n"),
            (format!("\"{}\"", key.replace('\n', "\\n")).into(), "written as \\n"),
            (key.replace('\n', "").into(), "line breaks are missing"),
            (key.replace('\n', " ").into(), "line breaks are missing"),
            (format!("\u{feff}{key}").into(), "byte-order mark"),
            (utf16, "UTF-16"),
            (b"\x30\x81\x87secret".to_vec(), "DER"),
            (Vec::new(), "empty"),
            (pem("ENCRYPTED PRIVATE KEY").into(), "encrypted"),
            (key.replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1).into(), "encrypted"),
            (pem("OPENSSH PRIVATE KEY").into(), "OpenSSH"),
            (pem("CERTIFICATE").into(), "it has a certificate and no private key"),
            (pem("PUBLIC KEY").into(), "it has a public key and no private key"),
            (pem("SECRET THING").into(), "it has no private key"),
            (BODY.into(), "no line -----BEGIN"),
            (key.replace("-----END PRIVATE KEY-----\n", "").into(), "END …----- is missing"),
            (key.replace("BEGIN PRIVATE KEY-----", "BEGIN PRIVATE KEY").into(), "line breaks are missing"),
            (key.replace("MIGH", "MI!H").into(), "not Base64"),
            (key.replace("-----END", "----END").into(), ""),
            (key.get(..key.len() / 2).unwrap().into(), ""),
        ];
        for (bytes, expected) in cases {
            let shown = String::from_utf8_lossy(&bytes).into_owned();
            let told = mistake(&bytes);
            assert!(told.contains(expected), "{shown:?}: {told}");
            for leaked in ["MIGH", "Secret", "77, 73, 71", "[45"] {
                assert!(!told.contains(leaked), "{shown:?}: {told}");
            }
        }
    }

    #[test]
    fn a_key_that_is_named_as_a_certificate_is_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let read = || read_pem_file::<CertificateDer<'static>>(&path, PemContent::Certificates).unwrap_err();
        for text in [pem("PRIVATE KEY"), pem("PRIVATE KEY").replace('\n', "\\n"), pem("PRIVATE KEY").replace('\n', "")]
        {
            std::fs::write(&path, &text).unwrap();
            let told = read();
            assert!(told.contains("key.pem cannot be read as certificates"), "{told}");
            assert!(!told.contains("MIGH") && !told.contains("77, 73"), "{told}");
        }
        std::fs::write(&path, pem("PRIVATE KEY")).unwrap();
        assert!(read().contains("it has a private key and no certificate"), "{}", read());
        std::fs::remove_file(&path).unwrap();
        assert!(read().contains("No such file"), "{}", read());
    }

    #[test]
    fn keys_with_cr_or_crlf_text_before_them_or_a_certificate_beside_them_are_read() {
        let key = pem("PRIVATE KEY");
        for text in [
            key.clone(),
            key.replace('\n', "\r"),
            key.replace('\n', "\r\n"),
            format!("Bag Attributes\n{key}"),
            pem("CERTIFICATE") + &key,
        ] {
            assert!(parse_private_key(text.as_bytes()).is_ok(), "{text}");
        }
    }
}
