//! Lua scripts, which the server knows by their hash.

use super::redis_connection::RedisLink;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, Script, ServerErrorKind, cmd};

/// A script with its text, for servers that do not know it yet.
#[derive(Debug)]
pub(in crate::store::shared) struct RedisScript {
    text: &'static str,
    hash: String,
}

/// How the server is told which script to run: `EVALSHA` and its hash, or `EVAL` and its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptSource<'a> {
    pub(super) command: &'static str,
    pub(super) script: &'a str,
}

/// The keys and arguments of one call of a script.
#[derive(Debug, Default)]
pub(in crate::store::shared) struct ScriptArguments {
    pub(in crate::store::shared) keys: Vec<Vec<u8>>,
    pub(in crate::store::shared) values: Vec<Vec<u8>>,
}

impl ScriptArguments {
    /// Appends an argument.
    pub(in crate::store::shared) fn push(&mut self, value: impl Into<Vec<u8>>) {
        self.values.push(value.into());
    }

    /// Appends a number.
    pub(in crate::store::shared) fn push_number(&mut self, value: impl itoa::Integer) {
        self.push(itoa::Buffer::new().format(value));
    }

    fn command(&self, source: ScriptSource<'_>) -> Cmd {
        let mut command = cmd(source.command);
        command.arg(source.script).arg(self.keys.len()).arg(&self.keys).arg(&self.values);
        command
    }
}

impl RedisScript {
    pub(in crate::store::shared) fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }

    /// Runs the script; sends its text if the server does not know it.
    pub(in crate::store::shared) async fn run<T: FromRedisValue>(
        &self,
        link: &mut RedisLink,
        arguments: &ScriptArguments,
    ) -> RedisResult<T> {
        self.run_command(link, |source| arguments.command(source)).await
    }

    /// Runs the script by a command that `command` makes, as [`RedisScript::run`] does.
    pub(super) async fn run_command<T: FromRedisValue>(
        &self,
        link: &mut RedisLink,
        command: impl Fn(ScriptSource<'_>) -> Cmd,
    ) -> RedisResult<T> {
        let result = link.query(&command(ScriptSource { command: "EVALSHA", script: &self.hash })).await;
        match result {
            Err(why) if why.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.query(&command(ScriptSource { command: "EVAL", script: self.text })).await
            }
            result => result,
        }
    }
}
