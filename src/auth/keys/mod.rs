//! Authentication by API key. A key is looked up by its public prefix, and its hash is compared in constant time; key
//! files are reloaded when they change. The key itself is never stored.

mod file;
mod new;
mod table;

pub use new::{NewKey, append_key, new_key};

use super::{
    access::Access,
    caller::{Bad, Verdict, now},
    config,
};
use crate::telemetry::{Event, Metrics};
use aws_lc_rs::{constant_time, digest, hmac};
use file::KeyFile;
use http::{HeaderMap, HeaderName, header};
use std::sync::Arc;
use table::{PREFIX_LENGTH, Table};

/// Maximum length of a key.
const LONGEST: usize = 256;

/// Minimum length of the secret part: 32 of 62 letters are 190 bits.
const SECRET: usize = 32;

/// Computes the stored hash of a key. Keys are random, so a slow hash would add no security and only let callers load
/// the gateway.
#[derive(Debug)]
pub(super) enum Hasher {
    Plain,
    Peppered(Box<hmac::Key>),
}

impl Hasher {
    pub(super) fn new(pepper: Option<&crate::unit::Secret>) -> Self {
        match pepper {
            None => Self::Plain,
            Some(pepper) => Self::Peppered(Box::new(hmac::Key::new(hmac::HMAC_SHA256, pepper.expose().as_bytes()))),
        }
    }

    fn hash(&self, key: &str) -> [u8; 32] {
        let mut hash = [0; 32];
        match self {
            Self::Plain => hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref()),
            Self::Peppered(pepper) => hash.copy_from_slice(hmac::sign(pepper, key.as_bytes()).as_ref()),
        }
        hash
    }
}

/// All API keys, and the header that carries them.
#[derive(Debug)]
pub(super) struct ApiKeys {
    header: HeaderName,
    hasher: Hasher,
    written: Table,
    files: Vec<KeyFile>,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
}

impl ApiKeys {
    pub(super) fn build(
        config: &config::ApiKeys,
        access: Arc<Access>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let name = HeaderName::try_from(&config.header).ok().filter(|name| !is_taken(name));
        if name.is_none() {
            problems.push(format!(
                "api_keys.header: '{}' is not usable (write a header name such as X-API-Key)",
                config.header
            ));
        }
        let pepper = config.pepper.as_ref().map(crate::unit::SecretRef::load).transpose();
        let pepper = pepper.map_err(|why| problems.push(format!("api_keys.pepper: {why}"))).unwrap_or_default();
        let (written, bad) = Table::from_config(&config.keys, &access);
        problems.extend(bad.into_iter().map(|(at, why)| format!("api_keys.keys[{at}]: {why}")));
        let mut files = Vec::with_capacity(config.files.len());
        for (at, path) in config.files.iter().enumerate() {
            match KeyFile::open(path, &access, &metrics) {
                Ok(file) => files.push(file),
                Err(why) => problems.push(format!("api_keys.files[{at}]: {why}")),
            }
        }
        let (Some(header), true) = (name, problems.is_empty()) else {
            return Err(problems);
        };
        metrics.count(Event::KeysLoaded);
        Ok(Self { header, hasher: Hasher::new(pepper.as_ref()), written, files, access, metrics })
    }

    pub(super) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Reloads the files that changed. Blocks: a million keys take a second.
    pub(super) fn reload_if_changed(&self) {
        for file in &self.files {
            file.reload_if_changed(&self.access, &self.metrics);
        }
    }

    /// Returns the number of keys.
    pub(super) fn count(&self) -> usize {
        self.written.len() + self.files.iter().map(KeyFile::len).sum::<usize>()
    }

    /// Checks a key without I/O, and without allocation if it is valid. An unknown key takes as long as a wrong one,
    /// and gets the same response.
    pub(super) fn check(&self, headers: &HeaderMap) -> Verdict {
        let Some(value) = headers.get(&self.header) else {
            return Verdict::NotMine;
        };
        let refuse = || Verdict::Bad(Bad::new("the API key is not valid"));
        let Some((prefix, key)) = value.to_str().ok().and_then(parts) else {
            return refuse();
        };
        let hash = self.hasher.hash(key);
        let holds = |table: &Table| {
            let stored = table.find(prefix);
            let known = stored.map_or(&[0; 32], |stored| &stored.hash);
            let same = constant_time::verify_slices_are_equal(known, &hash).is_ok();
            stored.filter(|stored| same && stored.counts_at(now())).map(|stored| Arc::clone(&stored.caller))
        };
        // Whether the configuration has keys is not a secret.
        let written = Some(&self.written).filter(|table| table.len() > 0).and_then(holds);
        let found = written.or_else(|| self.files.iter().find_map(|file| holds(&file.table())));
        found.map_or_else(refuse, Verdict::Known)
    }
}

/// Returns whether the header has another meaning in HTTP.
fn is_taken(name: &HeaderName) -> bool {
    [
        header::AUTHORIZATION,
        header::PROXY_AUTHORIZATION,
        header::COOKIE,
        header::HOST,
        header::CONTENT_LENGTH,
        header::TE,
    ]
    .contains(name)
        || [header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE, header::TRAILER, header::ACCEPT]
            .contains(name)
        || [header::CONTENT_TYPE, header::FORWARDED].contains(name)
}

/// Splits a key, `gp_<12 letters or digits>_<32 or more>`, into its public prefix and the whole key.
fn parts(text: &str) -> Option<([u8; PREFIX_LENGTH], &str)> {
    let word = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric());
    let (prefix, secret) = text.strip_prefix("gp_")?.split_once('_')?;
    let fits = text.len() <= LONGEST && secret.len() >= SECRET && word(prefix) && word(secret);
    Some((prefix.as_bytes().try_into().ok().filter(|_| fits)?, text))
}
