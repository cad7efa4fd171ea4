//! Attacks on a running gateway with the default bounds: documents that cost memory or time, which print what they cost,
//! and documents whose writer wants credentials or servers of others.

mod credentials;
mod documents;
