//! Threads of low priority: the operating system prefers the threads of calls to them.

/// Priority of such a thread, as `nice` has it.
const NICENESS: i32 = 10;

/// Lowers the priority of the calling thread for the rest of its life. Without the right to do so, it stays.
pub fn lower_thread_priority() {
    // On Linux, the priority is that of the calling thread.
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// Runs `work` on a thread of low priority, for which the calling thread waits; on the calling thread if there is no
/// other one. A panic of `work` continues in the caller.
pub fn run_at_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = parking_lot::Mutex::new(Some(work));
    let take_and_run = || work.lock().take().map(|work| work());
    let on_thread = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("low-priority".to_owned());
        let thread = thread.spawn_scoped(scope, || {
            lower_thread_priority();
            take_and_run()
        });
        thread.ok().map(|thread| thread.join())
    });
    match on_thread {
        Some(Ok(Some(result))) => result,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        Some(Ok(None)) | None => take_and_run().unwrap_or_else(|| unreachable!("the work runs once")),
    }
}
