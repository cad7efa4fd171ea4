//! What is started for a run ends with it, however that is: by itself, by Ctrl-C, or killed.
//!
//! Each program is started through this one, which asks the kernel for its own end when its parent ends, and becomes
//! that program. The wish outlives the change; asking for it between fork and exec would take unsafe code.

use anyhow::{Context as _, ensure};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A program, and whose end is to be its end.
#[derive(clap::Args)]
pub(crate) struct Leashed {
    /// The process that starts it. The kernel watches the thread that did: it must be one that lasts.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// The same command, started through this program.
pub(crate) fn leashed(command: &Command) -> anyhow::Result<Command> {
    let mut leashed = Command::new(std::env::current_exe()?);
    leashed.args(["leashed", "--parent", &getpid().to_string(), "--"]);
    leashed.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => leashed.env(name, value),
            None => leashed.env_remove(name),
        };
    }
    Ok(leashed)
}

/// Becomes the program; returns only where that fails.
pub(crate) fn become_it(leashed: &Leashed) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before the wish would never be noticed.
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
    ensure!(parent == Some(leashed.parent), "whoever started this has ended");
    let (program, arguments) = leashed.command.split_first().context("a program")?;
    let why = Command::new(program).args(arguments).exec();
    Err(why).with_context(|| format!("{} does not start", program.display()))
}
