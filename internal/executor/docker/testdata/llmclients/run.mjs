// Calls models with the clients of OpenAI and Anthropic, and prints a line for each call: its name, the number of
// requests that the client sent, and what the client returned. The variables of the sandbox configure the clients.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

let requests = 0;
const send = globalThis.fetch;
globalThis.fetch = (...args) => {
  requests++;
  return send(...args);
};

async function show(name, call) {
  requests = 0;
  let got;
  try {
    got = await call();
  } catch (e) {
    const message = (e.error?.error ?? e.error)?.message ?? e.message; // Anthropic's client keeps the whole body
    const answer = e.status ? ` ${e.status} ${e.type} ${e.headers.get("x-sandbox-gateway")}` : "";
    got = `${e.constructor.name}${answer}: ${message}`;
  }
  console.log(`${name}: ${requests}: ${got}`);
}

const messages = [{ role: "user", content: "What were you sent?" }];

const chat = (client, model, more) => client.chat.completions.create({ model, messages, max_tokens: 100, ...more });

// The text of a stream as it arrives, the chunks without text, and the usage that the stream tells.
async function chatPieces(stream) {
  let got = "", empty = 0, usage = "";
  for await (const chunk of await stream) {
    if (chunk.choices.length === 0) empty++;
    if (chunk.usage) usage = ` ${chunk.usage.prompt_tokens}+${chunk.usage.completion_tokens}`;
    const text = chunk.choices[0]?.delta.content;
    if (text) got += `[${text}]`;
  }
  return `${got} ${empty}${usage}`;
}

const openai = new OpenAI();
await show("openai models", async () => (await openai.models.list()).data.map((m) => m.id));
await show("openai answer", async () => {
  const answer = await chat(openai, "small");
  return `${answer.choices[0].message.content} ${answer.usage.prompt_tokens}+${answer.usage.completion_tokens}`;
});
await show("openai stream", () => chatPieces(chat(openai, "small", { stream: true })));
await show("openai stream with usage", () =>
  chatPieces(chat(openai, "small", { stream: true, stream_options: { include_usage: true } })));
await show("openai stream helper", () =>
  openai.chat.completions.stream({ model: "small", messages, max_tokens: 100 }).finalContent());
await show("openai stream left early", async () => {
  for await (const chunk of await chat(openai, "stall", { stream: true })) {
    const text = chunk.choices[0].delta.content;
    if (text) return text; // leaving the loop ends the request
  }
});
await show("openai error", () => chat(openai, "broken"));
await show("openai stream error", () => chat(openai, "broken", { stream: true }));
await show("openai gone", () => chat(openai, "gone"));
await show("openai stream gone", () => chatPieces(chat(openai, "gone", { stream: true })));
await show("openai model", () => chat(openai, "dear"));

const tight = new OpenAI({ baseURL: `${process.env.LLM_TIGHT_URL}/v1` });
await show("openai below the limit", async () => (await chat(tight, "small")).choices[0].message.content);
await show("openai stream below the limit", () => chatPieces(chat(tight, "small", { stream: true })));
await show("openai limit", () => chat(tight, "small"));
await show("openai stream limit", () => chat(tight, "small", { stream: true }));

const input = "What were you sent?";
await show("responses answer", async () => {
  const answer = await openai.responses.create({ model: "small", input, max_output_tokens: 100 });
  return `${answer.output_text} ${answer.usage.input_tokens}+${answer.usage.output_tokens}`;
});
await show("responses stream", async () => {
  let got = "";
  const stream = await openai.responses.create({ model: "small", input, max_output_tokens: 100, stream: true });
  for await (const e of stream) {
    if (e.type === "response.output_text.delta") got += `[${e.delta}]`;
    if (e.type === "response.completed") got += ` ${e.response.usage.input_tokens}+${e.response.usage.output_tokens}`;
  }
  return got;
});
await show("responses error", () => openai.responses.create({ model: "broken", input }));

const told = (usage) =>
  `${usage.input_tokens}+${usage.cache_creation_input_tokens}+${usage.cache_read_input_tokens}+${usage.output_tokens}`;
const message = (client, model, more) => client.messages.create({ model, messages, max_tokens: 100, ...more });

async function messagePieces(stream) {
  let got = "";
  for await (const e of await stream) {
    if (e.type === "content_block_delta") got += `[${e.delta.text}]`;
    if (e.type === "message_delta") got += ` ${e.delta.stop_reason} ${e.usage.output_tokens}`;
  }
  return got;
}

const anthropic = new Anthropic();
await show("anthropic models", async () => (await anthropic.models.list()).data.map((m) => m.id));
await show("anthropic answer", async () => {
  const answer = await message(anthropic, "small");
  return `${answer.content[0].text} ${told(answer.usage)}`;
});
await show("anthropic beta answer", async () => {
  const answer = await anthropic.beta.messages.create({ model: "small", messages, max_tokens: 100 });
  return `${answer.content[0].text} ${told(answer.usage)}`;
});
await show("anthropic stream", () => messagePieces(message(anthropic, "small", { stream: true })));
await show("anthropic stream helper", async () => {
  const answer = await anthropic.messages.stream({ model: "small", messages, max_tokens: 100 }).finalMessage();
  return `${answer.content[0].text} ${told(answer.usage)}`;
});
await show("anthropic stream left early", async () => {
  for await (const e of await message(anthropic, "stall", { stream: true })) {
    if (e.type === "content_block_delta") return e.delta.text; // leaving the loop ends the request
  }
});
await show("anthropic count", async () => {
  const { input_tokens } = await anthropic.messages.countTokens({ model: "small", messages });
  const beta = await anthropic.beta.messages.countTokens({ model: "small", messages });
  return `${input_tokens}+${beta.input_tokens}`;
});
await show("anthropic error", () => message(anthropic, "broken"));
await show("anthropic stream error", () => message(anthropic, "broken", { stream: true }));
await show("anthropic gone", () => message(anthropic, "gone"));
await show("anthropic stream gone", () => messagePieces(message(anthropic, "gone", { stream: true })));
await show("anthropic model", () => message(anthropic, "dear"));

const tightAnthropic = new Anthropic({ baseURL: process.env.LLM_TIGHT_ANTHROPIC_URL });
await show("anthropic below the limit", async () => (await message(tightAnthropic, "small")).content[0].text);
await show("anthropic stream below the limit", () =>
  messagePieces(message(tightAnthropic, "small", { stream: true })));
await show("anthropic limit", () => message(tightAnthropic, "small"));
await show("anthropic stream limit", () => message(tightAnthropic, "small", { stream: true }));
