//! Resolution against servers that publish, and misbehave.
