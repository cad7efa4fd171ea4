//! The body lengths that `bodies` measures.

/// The body lengths of `bodies`, in bytes.
pub(crate) const BODY_LENGTHS: [usize; 4] = [1 << 10, 64 << 10, 1 << 20, 64 << 20];
