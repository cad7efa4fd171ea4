//! Threads of low priority: the operating system prefers the threads of calls to them.

use std::{future::poll_fn, pin::pin, task::Context};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

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

/// Polls `future` on threads of low priority, while the threads of calls serve other calls. For work that takes longer than
/// a call may hold one.
pub async fn poll_at_low_priority<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let runtime = Handle::current();
    let mut future = pin!(future);
    poll_fn(|context| {
        // A context does not leave its thread.
        let waker = context.waker().clone();
        let mut poll = || {
            run_at_low_priority(|| {
                let _entered = runtime.enter();
                future.as_mut().poll(&mut Context::from_waker(&waker))
            })
        };
        // The runtime of one thread has no other one for its calls.
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread { poll() } else { block_in_place(poll) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::sleep;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_at_low_priority_holds_up_no_other_task() {
        let (end, ended) = std::sync::mpsc::channel();
        let work = tokio::spawn(poll_at_low_priority(async move {
            sleep(Duration::from_millis(1)).await;
            // Blocks its thread until another task of the only worker has run.
            let other_task_ran = ended.recv_timeout(Duration::from_secs(20)).is_ok();
            (other_task_ran, std::thread::current().name().map(str::to_owned))
        }));
        tokio::spawn(async move {
            sleep(Duration::from_millis(100)).await;
            end.send(()).unwrap();
        });
        assert_eq!(work.await.unwrap(), (true, Some("low-priority".to_owned())));
    }
}
