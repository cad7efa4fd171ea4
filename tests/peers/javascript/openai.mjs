// Calls the models of a gateway with OpenAI's SDK for JavaScript, unchanged. Usage: openai.mjs URL, with API_KEY.
import assert from "node:assert/strict";
import OpenAI from "openai";

const baseURL = process.argv[2];
const client = new OpenAI({ baseURL, apiKey: process.env.API_KEY });
const messages = [{ role: "user", content: "Hi" }];

const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert(models.includes("planner"));

const completion = await client.chat.completions.create({ model: "planner", messages });
assert.equal(completion.choices[0].message.content, "You said: Hi");
let text = "";
for await (const chunk of await client.chat.completions.create({ model: "planner", messages, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(text, "You said: Hi");

const response = await client.responses.create({ model: "planner", input: "Hi" });
assert.equal(response.output_text, "You said: Hi");
const kinds = [];
for await (const event of await client.responses.create({ model: "planner", input: "Hi", stream: true })) {
  kinds.push(event.type);
}
assert.equal(kinds.at(-1), "response.completed");

await assert.rejects(client.chat.completions.create({ model: "missing", messages }), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ model: "planner", messages, n: 2 }), (error) => {
  assert(error instanceof OpenAI.BadRequestError);
  return error.param === "n";
});
await assert.rejects(new OpenAI({ baseURL, apiKey: "gp_wrong" }).models.list(), OpenAI.AuthenticationError);
console.log("ok");
