//! Lua scripts, which the server knows by their hash.

use super::redis_connection::RedisLink;
use redis::{ErrorKind, FromRedisValue, RedisResult, Script, ServerErrorKind, cmd};

/// A script with its text, for servers that do not know it yet.
#[derive(Debug)]
pub(in crate::store::shared) struct RedisScript {
    text: &'static str,
    hash: String,
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
        let result = link.query(&self.command("EVALSHA", &self.hash, arguments)).await;
        match result {
            Err(why) if why.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.query(&self.command("EVAL", self.text, arguments)).await
            }
            result => result,
        }
    }

    fn command(&self, name: &str, script: &str, arguments: &ScriptArguments) -> redis::Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(arguments.keys.len()).arg(&arguments.keys).arg(&arguments.values);
        command
    }
}
