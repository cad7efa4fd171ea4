//! Client certificates (mutual TLS): the certificate of a connection, and authentication by it.

mod certificate_authenticator;
mod client_certificate;

pub(super) use certificate_authenticator::CertificateAuthenticator;
pub use client_certificate::ClientCertificate;
