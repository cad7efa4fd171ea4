//! Transparent huge pages, which the process does without: they round each part of the heap up to 2 MiB.

/// The allocator's own variable; an operator who sets it decides.
const ALLOCATOR_VARIABLE: &str = "MIMALLOC_ALLOW_THP";

/// Keeps the kernel from using huge pages for this process, whatever the setting of the machine is. The allocator does
/// not ask for them, but where `/sys/kernel/mm/transparent_hugepage/enabled` is `always`, the kernel uses them unasked.
pub(super) fn disable_huge_pages() {
    if std::env::var_os(ALLOCATOR_VARIABLE).is_some() {
        return;
    }
    if let Err(why) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!("huge pages stay on: {why}");
    }
}
