//! Ties the programs that a run starts to the run: they end when it ends, whether it returns, is interrupted or is
//! killed.
//!
//! Each program is started through this one, which asks the kernel for a signal when its parent ends and then executes
//! the program. The request outlives the exec. Making it between fork and exec would take unsafe code.

use anyhow::{Context as _, ensure};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A program, and the process at whose end it is to end.
#[derive(clap::Args)]
pub(crate) struct ParentBoundProgram {
    /// The parent process. The kernel watches the thread that starts the child: it must outlive the child.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Returns the same command, started through this program.
pub(crate) fn bound_to_this_process(command: &Command) -> anyhow::Result<Command> {
    let mut bound = Command::new(std::env::current_exe()?);
    bound.args(["leashed", "--parent", &getpid().to_string(), "--"]);
    bound.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    Ok(bound)
}

/// Executes the program in place of this one. Returns only if that fails.
pub(crate) fn exec_bound_to_parent(child: &ParentBoundProgram) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before the request would go unnoticed.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    ensure!(parent == Some(child.parent), "the parent process has ended");
    let (program, arguments) = child.command.split_first().context("no program to execute")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("{} does not start", program.display()))
}
