//! Lines that call an agent, to be pasted: curl, Python and JavaScript.

use super::{
    code_literals::{LiteralStyle, shell_word, string_literal},
    required_credential::LineCredential,
};
use serde_json::Value;

/// The body of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum LineBody<'a> {
    /// JSON.
    Json(&'a Value),
    /// A file of this media type.
    File(&'a str),
}

impl LineBody<'_> {
    fn media_type(&self) -> &str {
        match self {
            Self::Json(_) => "application/json",
            Self::File(media_type) => media_type,
        }
    }
}

/// A call as lines of programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLines<'a> {
    pub(super) url: &'a str,
    pub(super) credential: &'a LineCredential,
    pub(super) body: LineBody<'a>,
}

impl CallLines<'_> {
    /// Returns the lines for curl in a POSIX shell.
    pub(super) fn curl(&self) -> String {
        let mut words = vec![format!("curl -sS {}", shell_word(self.url))];
        match self.credential {
            LineCredential::Nothing => {}
            LineCredential::Header { name, prefix, variable } => {
                words.push(format!("-H {}\"${variable}\"", shell_word(&format!("{name}: {prefix}"))));
            }
            LineCredential::Certificate => words.push("--cert client.pem --key client.key".to_owned()),
        }
        words.push(format!("-H {}", shell_word(&format!("Content-Type: {}", self.body.media_type()))));
        words.push(match self.body {
            LineBody::Json(value) => format!("--data-raw {}", shell_word(&LiteralStyle::JSON.literal(value, 0))),
            LineBody::File(_) => "--data-binary @input".to_owned(),
        });
        words.join(" \\\n  ")
    }

    /// Returns the lines for Python, which need nothing but its standard library.
    pub(super) fn python(&self) -> String {
        let (mut modules, mut context, mut argument) = (vec!["json", "os", "urllib.request"], "", "");
        let mut headers = vec![format!("\"Content-Type\": {}", string_literal(self.body.media_type()))];
        match self.credential {
            LineCredential::Nothing => modules.retain(|module| *module != "os"),
            LineCredential::Header { name, prefix: "", variable } => {
                headers.insert(0, format!("{}: os.environ[\"{variable}\"]", string_literal(name)));
            }
            LineCredential::Header { name, prefix, variable } => {
                let value = format!("{} + os.environ[\"{variable}\"]", string_literal(prefix));
                headers.insert(0, format!("{}: {value}", string_literal(name)));
            }
            LineCredential::Certificate => {
                modules = vec!["json", "ssl", "urllib.request"];
                context =
                    "context = ssl.create_default_context()\ncontext.load_cert_chain(\"client.pem\", \"client.key\")\n";
                argument = ", context=context";
            }
        }
        let data = match self.body {
            LineBody::Json(value) => format!("json.dumps({}).encode()", LiteralStyle::PYTHON.literal(value, 4)),
            LineBody::File(_) => {
                modules.retain(|module| *module != "json");
                "open(\"input\", \"rb\").read()".to_owned()
            }
        };
        let (modules, url, headers) = (modules.join(", "), string_literal(self.url), headers.join(", "));
        format!(
            "import {modules}\n\n{context}request = urllib.request.Request(\n    {url},\n    data={data},\n    \
             headers={{{headers}}},\n)\nwith urllib.request.urlopen(request{argument}) as response:\n    \
             print(response.read().decode())"
        )
    }

    /// Returns the lines for JavaScript in a module of Node.js; `None` for a client certificate, which `fetch` does not
    /// present.
    pub(super) fn javascript(&self) -> Option<String> {
        let mut headers = vec![format!("\"Content-Type\": {}", string_literal(self.body.media_type()))];
        match self.credential {
            LineCredential::Nothing => {}
            LineCredential::Header { name, prefix, variable } => {
                let begin = if prefix.is_empty() { String::new() } else { format!("{} + ", string_literal(prefix)) };
                headers.insert(0, format!("{}: {begin}process.env.{variable}", string_literal(name)));
            }
            LineCredential::Certificate => return None,
        }
        let (import, body) = match self.body {
            LineBody::Json(value) => ("", format!("JSON.stringify({})", LiteralStyle::JAVASCRIPT.literal(value, 2))),
            LineBody::File(_) => {
                ("import { readFile } from \"node:fs/promises\";\n\n", "await readFile(\"input\")".to_owned())
            }
        };
        let (url, headers) = (string_literal(self.url), headers.join(", "));
        Some(format!(
            "{import}const response = await fetch({url}, {{\n  method: \"POST\",\n  headers: {{{headers}}},\n  \
             body: {body},\n}});\nconsole.log(await response.text());"
        ))
    }
}
