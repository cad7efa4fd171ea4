//! Random ids that name something and guard nothing: they are fast to make and can be predicted.

/// Returns a random number that is not zero.
pub fn random_nonzero_u64() -> u64 {
    fastrand::u64(..).max(1)
}

/// Returns a random number that is not zero.
pub fn random_nonzero_u128() -> u128 {
    (u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..))).max(1)
}
