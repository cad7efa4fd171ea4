// Uses an MCP server with the TypeScript SDK, unchanged: it opens an event stream after `initialize`, and ends its session.
// Usage: mcp.mjs URL, with API_KEY for a gateway. Prints what each method of the client returns or raises.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const key = process.env.API_KEY;
const requestInit = { headers: key ? { "X-API-Key": key } : {} };
const errors = [];
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]), { requestInit });
const client = new Client({ name: "peer", version: "1.0.0" }, { capabilities: { roots: { listChanged: true } } });
client.onerror = (error) => errors.push(String(error));
await client.connect(transport);
const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name), ["add"]);
const progress = [];
const result = await client.callTool({ name: "add", arguments: { a: 1, b: 2 } }, undefined, {
  onprogress: (update) => progress.push(update.progress),
});
assert.equal(result.content[0].text, "3");
assert.deepEqual(progress, [1]);
assert.equal((await client.readResource({ uri: "peer://greeting" })).contents[0].text, "Hi");
assert.match((await client.getPrompt({ name: "ask", arguments: { topic: "tea" } })).messages[0].content.text, /tea/);

const resource = { uri: "peer://greeting" };
const calls = {
  ping: [],
  complete: [{ ref: { type: "ref/prompt", name: "ask" }, argument: { name: "topic", value: "t" } }],
  setLoggingLevel: ["info"],
  listPrompts: [],
  listResources: [],
  listResourceTemplates: [],
  subscribeResource: [resource],
  unsubscribeResource: [resource],
  sendRootsListChanged: [],
};
for (const [name, parameters] of Object.entries(calls)) {
  let outcome;
  try {
    outcome = Object.keys((await client[name](...parameters)) ?? {}).join(" ");
  } catch (error) {
    outcome = String(error);
  }
  console.log(`${name}: ${outcome}`);
}
await transport.terminateSession();
await client.close();
assert.deepEqual(errors, []);
